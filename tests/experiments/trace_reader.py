"""Reader of traces in Perfetto's format, by the classes of the package perfetto."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent


@dataclass
class ReadSlice:
    """A slice as a viewer shows it; ``outer`` is the slice that it lies in."""

    track: str
    name: str
    category: str
    begin: int
    arguments: Mapping[str, Any]
    leaving: Sequence[int]
    entering: Sequence[int]
    outer: ReadSlice | None
    end: int = -1

    @property
    def duration(self) -> int:
        return self.end - self.begin


@dataclass
class ReadTrace:
    """Tracks, slices and counters of a trace; the values of a counter are (time, value)."""

    tracks: dict[int, str] = field(default_factory=dict)
    slices: list[ReadSlice] = field(default_factory=list)
    counters: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    times: list[int] = field(default_factory=list)

    def of(self, *tracks: str) -> list[ReadSlice]:
        """The slices of some tracks."""
        return [one for one in self.slices if one.track in tracks]


def read_trace(content: bytes) -> ReadTrace:
    """Read a trace, and check what the format requires."""
    found = ReadTrace()
    opened: dict[str, list[ReadSlice]] = defaultdict(list)
    for packet in Trace.FromString(content).packet:
        if packet.HasField("track_descriptor"):
            described = packet.track_descriptor
            assert described.uuid not in found.tracks
            assert not described.parent_uuid or described.parent_uuid in found.tracks
            found.tracks[described.uuid] = described.name
            continue
        event = packet.track_event
        track = found.tracks[event.track_uuid]
        assert packet.trusted_packet_sequence_id
        found.times.append(packet.timestamp)
        if event.type == TrackEvent.TYPE_COUNTER:
            found.counters[track].append((packet.timestamp, event.double_counter_value))
        elif event.type == TrackEvent.TYPE_SLICE_BEGIN:
            (category,) = event.categories
            outer = opened[track][-1] if opened[track] else None
            flows = list(event.flow_ids), list(event.terminating_flow_ids)
            arguments = _arguments(event.debug_annotations)
            one = ReadSlice(track, event.name, category, packet.timestamp, arguments, *flows, outer)
            found.slices.append(one)
            opened[track].append(one)
        else:
            assert event.type == TrackEvent.TYPE_SLICE_END
            opened[track].pop().end = packet.timestamp
    assert not any(opened.values())
    return found


def _arguments(annotations: Any) -> dict[str, Any]:
    found = {}
    for one in annotations:
        kind = one.WhichOneof("value")
        found[one.name] = getattr(one, kind) if kind else _arguments(one.dict_entries)
    return found
