"""Read calibration samples, and keep the first ones to judge the quantised model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import chain, islice

from onnx import ModelProto

from byoc.frontend.onnx.state import find_state, zero_state
from byoc.quantisation.calibrate import DEFAULT_FEEDS, NO_FEEDS, NO_STATE, Feeds, Pairs
from isa.errors import InputError
from isa.progress import Progress

MOST_KEPT = 64
"""Maximum number of calibration samples kept to compare the quantised model with the float one."""
MOST_KEPT_BYTES = 1 << 26
"""Total size of samples, in bytes, above which no further sample is kept."""


def count_samples(calibration: Iterable[Feeds] | None) -> int:
    """Return the number of calibration samples; 0 if it is not known in advance."""
    if calibration is None:
        return DEFAULT_FEEDS
    return len(calibration) if isinstance(calibration, Sized) else 0


def tell_sample(progress: Progress, name: str, total: int, count: int) -> None:
    """Report that the next sample is run, after ``count`` of ``total`` samples."""
    progress(f"finding the ranges of {name}, sample {count + 1}", count, total)


class CalibrationSamples:
    """Calibration samples that the quantiser consumes one by one.

    The object counts them and keeps the first ones. ``state`` that they lack, or all of it if they
    are ``drawn``, passes from one sample to the next.
    """

    def __init__(
        self,
        feeds: Callable[[ModelProto], Iterator[Feeds]],
        counted: Callable[[int], None],
        *,
        drawn: bool = False,
    ) -> None:
        self.count = 0
        self.initial = NO_FEEDS
        """Values of the state before the first inference; zeros for those that are missing."""
        self.state: Pairs = NO_STATE
        self._drawn = drawn
        self._carried: Feeds = {}
        self._counted = counted
        self.kept: list[Feeds] = []
        self.outputs: list[Feeds] = []
        """Outputs of the prepared model on the kept samples."""
        self._make = feeds
        self._feeds: Iterator[Feeds] | None = None

    def find_state(self, prepared: ModelProto, given: Pairs, initial: Feeds = NO_FEEDS) -> None:
        """Find the state of a model; one with a single input has state only if it is ``given``."""
        self.initial = initial
        if given or len(prepared.graph.input) > 1:
            self.state = find_state(prepared, given)

    def first(self, prepared: ModelProto) -> Feeds:
        """Return the first calibration sample for ``prepared``, the same at every call.

        Raises InputError if there is none.
        """
        if self._feeds is None:
            if self.state and not self._drawn:
                self._carried = {**zero_state(prepared, self.state), **self.initial}
            self._feeds = map(self._complete, self._make(prepared))
            self.kept = list(islice(self._feeds, 1))
            if not self.kept:
                raise InputError("there are no calibration samples; give at least one")
        return self.kept[0]

    def _complete(self, feed: Feeds) -> Feeds:
        """Return a sample with the state that the sample before left."""
        return {**feed, **self._carried} if self._drawn else {**self._carried, **feed}

    def hear(self, outputs: Feeds) -> None:
        """Record the prepared model's outputs for the next calibration sample."""
        self._carried = {name: outputs[result] for name, result in self.state.items()}
        if len(self.outputs) < len(self.kept):
            self.outputs.append(outputs)

    def all(self) -> Iterator[Feeds]:
        """Yield and count every calibration sample; only the first call yields all of them."""
        kept = 0
        for feed in chain(tuple(self.kept), self._feeds or ()):
            self._counted(self.count)
            self.count += 1
            if len(self.kept) < min(self.count, MOST_KEPT) and kept < MOST_KEPT_BYTES:
                self.kept.append(feed)
            kept += sum(array.nbytes for array in feed.values())
            yield feed
