"""Page cache of the model's files is given back, as the kernel itself tells (mincore)."""

import asyncio
import ctypes
import mmap
import os
from pathlib import Path

import pytest

from core.registry import registry
from core.settings import resolve
from entrypoint import pagecache
from entrypoint.boot import Boot
from entrypoint.pagecache import evict, readers_of

SIZE = 8 << 20
PAGES = SIZE // mmap.PAGESIZE


def cached(path: Path) -> int:
    """Pages of the file that are in page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    with path.open("r+b") as file, mmap.mmap(file.fileno(), SIZE) as held:
        vector = ctypes.create_string_buffer(PAGES)
        start = ctypes.c_char.from_buffer(held)
        assert libc.mincore(ctypes.addressof(start), SIZE, vector) == 0
        del start
        return sum(byte & 1 for byte in vector.raw)


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "model-1.safetensors"
    with path.open("wb") as file:
        file.write(os.urandom(SIZE))
        file.flush()
        os.fsync(file.fileno())  # dirty pages cannot be dropped
    path.read_bytes()
    assert cached(path) == PAGES
    return path


def test_a_file_that_nobody_reads_is_dropped_whole(shard: Path) -> None:
    assert evict([shard.parent, shard.parent / "nowhere"]) == 1
    assert cached(shard) == 0


def test_a_file_is_dropped_up_to_where_its_reader_stands(shard: Path) -> None:
    with shard.open("rb", buffering=0) as reader:
        reader.seek(SIZE // 2)
        readers = readers_of([os.getpid()])
        assert readers == {shard: SIZE // 2}
        evict([shard.parent], readers)
        assert 0 < cached(shard) <= PAGES // 2 + 1
        reader.seek(0)
        shard.read_bytes()
        evict([shard.parent], readers_of([os.getpid()]))
        assert cached(shard) == PAGES, "its reader has not begun"


def test_what_a_process_has_mapped_stays(shard: Path) -> None:
    with shard.open("rb") as file, mmap.mmap(file.fileno(), SIZE, prot=mmap.PROT_READ) as held:
        assert held[:: mmap.PAGESIZE]
        evict([shard.parent])
        assert cached(shard) == PAGES


def test_a_process_that_is_gone_reads_nothing() -> None:
    assert readers_of([2**22 - 1]) == {}


class Loading:
    """An engine that runs until told otherwise."""

    running = True

    def pids(self) -> tuple[int, ...]:
        return ()


def _boot(shard: Path) -> Boot:
    boot = Boot({})
    boot.settings = resolve(registry(), {"MODEL_DIR": str(shard.parent), "DFLASH_MODEL": str(shard.parent / "none")})
    return boot


@pytest.mark.parametrize("end", ["served", "exited", "replaced"])
def test_all_through_the_load_and_no_longer(shard: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagecache, "PAUSE_S", 0.01)

    async def run() -> None:
        boot, engine = _boot(shard), Loading()
        boot.engine = engine  # type: ignore[assignment]
        clearing = asyncio.create_task(pagecache.keep_clear(boot))
        for _ in range(2):  # again and again: the engine reads on
            shard.read_bytes()
            async with asyncio.timeout(20):
                while cached(shard):
                    await asyncio.sleep(0.01)
        if end == "served":
            boot.served_at = 1.0
        elif end == "exited":
            engine.running = False
        else:
            boot.engine = None
        await asyncio.wait_for(clearing, 20)
        shard.read_bytes()
        assert cached(shard) == PAGES

    asyncio.run(run())


def test_what_a_copy_left_behind_is_dropped_before_registration(shard: Path) -> None:
    asyncio.run(pagecache.clear(_boot(shard), "fabric"))
    assert cached(shard) == 0
