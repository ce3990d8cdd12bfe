"""How much one address may ask for: a bucket of tokens each, in a table of fixed size. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

MOST_ADDRESSES = 1024


@dataclass
class Buckets:
    """`rate` requests a second on the long run, `burst` at once, for every address by itself."""

    rate: float
    burst: float
    _levels: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, address: str, now: float) -> float:
        """0 when the request may go on, else the seconds until the next one may."""
        level, at = self._levels.pop(address, (self.burst, now))
        level = min(self.burst, level + self.rate * max(0.0, now - at))
        wait = 0.0 if level >= 1 else (1 - level) / self.rate
        self._levels[address] = (level - 1 if wait == 0 else level, now)
        while len(self._levels) > MOST_ADDRESSES:
            self._levels.popitem(last=False)
        return wait
