"""Trace in Perfetto's format: tracks with slices, counters and flows (docs/debugging.md).

Perfetto stores times as integer nanoseconds. One cycle is one nanosecond in the trace, so that sums
of times are exact numbers of cycles at every clock.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    CounterDescriptor,
    TrackDescriptor,
    TrackEvent,
)
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

BYTES, PERCENT = "bytes", "%"
"""Units of counters."""
_ROOT = 1
_SEQUENCE = 1
"""Number of the sequence of packets; a trace of one writer has one."""


class PerfettoTrace:
    """Trace under construction.

    Args:
        title: name of the group that contains all tracks.
        tracks: names of the tracks of slices, from top to bottom.
        counters: names of the counter tracks, which follow, and the unit of each.
    """

    def __init__(self, title: str, tracks: Iterable[str], counters: Mapping[str, str]) -> None:
        self._builder = TraceProtoBuilder()
        self._events: list[tuple[int, Any]] = []
        names = (*tracks, *counters)
        self._tracks = {name: number for number, name in enumerate(names, start=_ROOT + 1)}
        explicit = TrackDescriptor.ChildTracksOrdering.EXPLICIT
        self._builder.add_packet().track_descriptor.MergeFrom(
            TrackDescriptor(uuid=_ROOT, name=title, child_ordering=explicit)
        )
        for name, number in self._tracks.items():
            found = self._builder.add_packet().track_descriptor
            found.uuid, found.parent_uuid, found.name = number, _ROOT, name
            found.sibling_order_rank = number
            if name in counters:
                found.counter.MergeFrom(_describe_counter(counters[name]))

    def add_slice(
        self,
        track: str,
        name: str,
        category: str,
        span: tuple[int, int],
        arguments: Mapping[str, Any] | None = None,
        flows: tuple[Iterable[int], Iterable[int]] = ((), ()),
    ) -> None:
        """Add a slice to a track.

        It starts after the end of the track's previous slice, or lies within that slice.

        ``flows`` are the numbers of the flows that leave the slice, and of those that end in it.
        """
        begin, end = span
        leaving, entering = flows
        event = self._add(track, begin, TrackEvent.TYPE_SLICE_BEGIN)
        event.name = name
        event.categories.append(category)
        event.flow_ids.extend(leaving)
        event.terminating_flow_ids.extend(entering)
        _annotate(event.debug_annotations, arguments or {})
        self._add(track, end, TrackEvent.TYPE_SLICE_END)

    def add_value(self, track: str, time: int, value: float) -> None:
        """Add the value of a counter from ``time`` on; the times of a counter ascend."""
        self._add(track, time, TrackEvent.TYPE_COUNTER).double_counter_value = value

    def serialize(self) -> bytes:
        """Return the trace with its events in order of time; equal calls give equal bytes."""
        for time, event in sorted(self._events, key=lambda pair: pair[0]):
            packet = self._builder.add_packet()
            packet.timestamp, packet.trusted_packet_sequence_id = time, _SEQUENCE
            packet.track_event.CopyFrom(event)
        self._events.clear()
        return bytes(self._builder.serialize())

    def _add(self, track: str, time: int, kind: int) -> Any:
        event = TrackEvent(type=kind, track_uuid=self._tracks[track])
        self._events.append((time, event))
        return event


def _describe_counter(unit: str) -> Any:
    if unit == BYTES:
        return CounterDescriptor(unit=CounterDescriptor.UNIT_SIZE_BYTES)
    return CounterDescriptor(unit_name=unit)


def _annotate(annotations: Any, arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        found = annotations.add(name=name)
        if isinstance(value, Mapping):
            _annotate(found.dict_entries, value)
        elif isinstance(value, str):
            found.string_value = value
        else:
            found.int_value = value
