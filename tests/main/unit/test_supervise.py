"""The engine as a child, tried with real process trees: stubborn ones, orphaned ones, ones that rename themselves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.plan import Command
from entrypoint.supervise import Engine, Stopped, confirm_gone, log_path, note_path, processes

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def box() -> Iterator[str]:
    """A lan address nobody else uses; at the end nothing that carries it may live."""
    name = f"127.9.9.9-{uuid.uuid4().hex[:8]}"
    yield name
    left = processes.marked(processes.BOX_MARK, name)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def program(source: str) -> Command:
    return Command((sys.executable, "-S", "-c", textwrap.dedent(source)), {"PATH": os.environ["PATH"]})


def engine(source: str, folder: Path, box: str, on_line: Callable[[str], None] | None = None) -> Engine:
    return Engine(program(source), folder / "vllm.log", on_line, box=box, incarnation=f"{box}/1", nice=3)


async def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "did not come about in time"
        await asyncio.sleep(0.02)


def lives(pid: int | str) -> bool:
    return int(pid) in processes.table()  # a zombie that nobody collects does not live


def living(box: str) -> set[int]:
    return processes.marked(processes.BOX_MARK, box)


async def test_a_program_that_ends_by_itself(tmp_path: Path, box: str) -> None:
    lines: list[str] = []
    run = engine("print('one'); print('two'); raise SystemExit(3)", tmp_path, box, lines.append)
    await run.start()
    assert await asyncio.wait_for(run.wait(), 30) == 3
    stopped = await run.stop(5)
    assert lines == ["one", "two"]
    assert run.tail() == ("one", "two")
    assert (tmp_path / "vllm.log").read_text() == "one\ntwo\n"
    assert stopped.status == 3
    assert stopped.confirmed
    assert not stopped.killed


async def test_the_pid_is_the_program_s_not_the_guard_s(tmp_path: Path, box: str) -> None:
    run = engine("import os; print(os.getpid(), flush=True); import time; time.sleep(60)", tmp_path, box)
    await run.start()
    await until(run.tail)
    assert run.tail() == (str(run.pid),)
    assert run.running
    stopped = await run.stop(5)
    assert stopped.status == -signal.SIGTERM
    assert not stopped.killed
    assert not run.running


async def test_a_signal_death_is_seen(tmp_path: Path, box: str) -> None:
    run = engine("import time; time.sleep(60)", tmp_path, box)
    await run.start()
    assert run.pid
    os.kill(run.pid, signal.SIGKILL)
    assert await asyncio.wait_for(run.wait(), 30) == -signal.SIGKILL
    assert (await run.stop(5)).confirmed


async def test_a_command_that_does_not_exist_ends_with_127_and_a_line(tmp_path: Path, box: str) -> None:
    run = Engine(Command(("/no/such/python",), {}), tmp_path / "vllm.log", box=box, incarnation="x/1")
    await run.start()
    assert await asyncio.wait_for(run.wait(), 30) == 127
    await run.stop(1)
    assert "cannot execute /no/such/python" in run.tail()[-1]


STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('up', flush=True)
time.sleep(60)
"""


async def test_term_ignored_is_killed_after_the_deadline(tmp_path: Path, box: str) -> None:
    run = engine(STUBBORN, tmp_path, box)
    await run.start()
    await until(run.tail)
    stopped = await run.stop(0.5)
    assert stopped.killed
    assert stopped.status == -signal.SIGKILL
    assert stopped.confirmed
    assert stopped.seconds >= 0.5
    assert not living(box)


# Grandchild leaves the session, its parent dies, it ignores TERM and wipes the environment others can see
# (as setproctitle does when vLLM's helpers take the name VLLM::Worker).
ORPHANS = """
import ctypes, os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stat = open('/proc/self/stat').read().rpartition(')')[2].split()
        start, end = int(stat[47]), int(stat[48])
        ctypes.memset(start, 0, end - start)
        assert b'GLM53' not in open('/proc/self/environ', 'rb').read()
        print('orphan', os.getpid(), flush=True)
        time.sleep(60)
    os._exit(0)
os.wait()
time.sleep(60)
"""


def orphan(run: Engine) -> int:
    return int(run.tail()[-1].split()[1])


async def test_double_forked_helpers_without_a_mark_go_with_stop(tmp_path: Path, box: str) -> None:
    run = engine(ORPHANS, tmp_path, box)
    await run.start()
    await until(run.tail)
    stopped = await run.stop(2)
    assert stopped.confirmed
    assert not lives(orphan(run))
    assert not living(box)


async def test_helpers_go_when_the_main_process_is_killed(tmp_path: Path, box: str) -> None:
    run = engine(ORPHANS, tmp_path, box)
    await run.start()
    await until(run.tail)
    assert run.pid
    os.kill(run.pid, signal.SIGKILL)
    assert await asyncio.wait_for(run.wait(), 30) == -signal.SIGKILL
    assert (await run.stop(5)).confirmed
    assert not lives(orphan(run))


async def test_helpers_go_when_the_guard_is_killed_too(tmp_path: Path, box: str) -> None:
    run = engine(ORPHANS, tmp_path, box)
    await run.start()
    await until(lambda: run.tail() and f"pid {orphan(run)} " in _text(run.note))
    guard = run._guard
    assert guard is not None
    os.kill(guard.pid, signal.SIGKILL)
    assert await asyncio.wait_for(run.wait(), 30) == -signal.SIGKILL
    stopped = await run.stop(5)
    assert stopped.confirmed
    assert not lives(orphan(run))
    assert not run.note.exists()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def shared(name: str) -> str:
    return f"""
    import mmap, os, sys, time
    fd = os.open('/dev/shm/{name}', os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 4096)
    held = mmap.mmap(fd, 4096)
    os.close(fd)
    print('up', flush=True)
    time.sleep(60)
    """


async def test_shared_memory_left_by_a_killed_engine_is_removed(tmp_path: Path, box: str) -> None:
    name = f"glm53-test-{uuid.uuid4().hex}"
    segment = Path("/dev/shm") / name
    foreign = Path("/dev/shm") / f"{name}-foreign"
    foreign.touch()
    try:
        run = engine(shared(name), tmp_path, box)
        await run.start()
        await until(lambda: name in _text(run.note))
        assert run.pid
        os.kill(run.pid, signal.SIGKILL)
        await asyncio.wait_for(run.wait(), 30)
        stopped = await run.stop(5)
        assert stopped.removed == (str(segment),)
        assert not segment.exists()
        assert foreign.exists(), "a segment that this engine never held is somebody else's"
    finally:
        foreign.unlink()
        segment.unlink(missing_ok=True)


KIT = """
import asyncio, sys
from pathlib import Path
from core.plan import Command
from entrypoint.supervise import Engine
async def main():
    command = Command((sys.executable, "-S", "-c", sys.argv[3]), {"PATH": "/usr/bin:/bin"})
    run = Engine(command, Path(sys.argv[1]), box=sys.argv[2], incarnation=sys.argv[2] + "/1")
    await run.start()
    while not run.tail():
        await asyncio.sleep(0.02)
    while sys.argv[4] not in (run.note.read_text() if run.note.exists() else ""):
        await asyncio.sleep(0.02)
    print(run.pid, run._guard.pid, *run.tail()[-1].split(), flush=True)
    await run.wait()
asyncio.run(main())
"""


def kit(folder: Path, box: str, source: str, noted: str = "pid") -> tuple[subprocess.Popen[str], list[str]]:
    """A kit in a process of its own, and what it printed: the engine's pid, the guard's, the engine's last line."""
    arguments = (str(folder / "vllm.log"), box, textwrap.dedent(source), noted)
    process = subprocess.Popen(
        [sys.executable, "-c", KIT, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().split()


async def test_a_killed_kit_takes_its_engine_along(tmp_path: Path, box: str) -> None:
    process, words = kit(tmp_path, box, ORPHANS)
    engine_pid, _, _, helper = words
    process.kill()
    process.wait()
    await until(lambda: not lives(engine_pid) and not lives(helper))
    await until(lambda: not living(box))
    assert not note_path(tmp_path / "vllm.log").exists()


async def test_the_next_kit_sweeps_what_a_killed_kit_and_guard_left(tmp_path: Path, box: str) -> None:
    name = f"glm53-test-{uuid.uuid4().hex}"
    process, words = kit(tmp_path, box, ORPHANS)
    engine_pid, guard, _, helper = words
    note = note_path(tmp_path / "vllm.log")
    await until(lambda: f"pid {helper} " in _text(note))
    segment = Path("/dev/shm") / name
    segment.touch()
    note.write_text(_text(note) + f"shm {segment}\n")
    os.kill(int(guard), signal.SIGSTOP)  # a guard that cannot act
    process.kill()
    process.wait()
    assert lives(helper)
    gone = await confirm_gone(box, note)
    assert gone.confirmed
    assert gone.ended >= 3
    assert gone.removed == (str(segment),)
    assert not lives(helper)
    assert not lives(engine_pid)


async def test_a_sweep_with_nothing_to_do_says_so(tmp_path: Path, box: str) -> None:
    gone = await confirm_gone(box, tmp_path / "none.family")
    assert (gone.ended, gone.removed, gone.left) == (0, (), ())


async def test_a_note_of_another_boot_names_nobody(tmp_path: Path, box: str) -> None:
    """Same pid, other start time: that process is somebody else's."""
    note = tmp_path / "vllm.log.family"
    note.write_text(f"pid {os.getpid()} 1\npid 1 1\npid x\nshm /etc/passwd\nshm\ngarbage\n")
    gone = await confirm_gone(box, note)
    assert gone.ended == 0
    assert gone.removed == ()
    assert Path("/etc/passwd").exists()


async def test_stopping_twice_and_stopping_what_never_started(tmp_path: Path, box: str) -> None:
    run = engine("import time; time.sleep(60)", tmp_path, box)
    assert await run.stop(1) == Stopped(0, (), (), 0.0, None, False)
    await run.start()
    assert (await run.stop(2)).confirmed
    assert (await run.stop(2)).confirmed


async def test_the_child_gets_the_planned_environment_and_nothing_else(
    tmp_path: Path, box: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLM53_SECRET_OF_THE_KIT", "x")
    run = engine("import os; print(sorted(os.environ), os.getcwd())", tmp_path, box)
    await run.start()
    await run.wait()
    await run.stop(1)
    names = run.tail()[-1]
    assert "GLM53_SECRET_OF_THE_KIT" not in names
    assert "'GLM53_BOX', 'GLM53_ENGINE'" in names
    assert names.endswith("] /")


async def test_the_previous_log_is_kept_and_a_long_one_is_cut(tmp_path: Path, box: str) -> None:
    path = log_path(str(tmp_path), "head")
    assert path.name == "vllm-head.log"
    for text in ("first", "second"):
        run = Engine(program(f"print('{text}')"), path, box=box, incarnation=f"{box}/1")
        await run.start()
        await run.wait()
        await run.stop(1)
    assert path.read_text() == "second\n"
    assert path.with_name("vllm-head.log.previous").read_text() == "first\n"
    source = "import time\nfor i in range(40): print('x' * 99, flush=True); time.sleep(0.002)"
    run = Engine(program(source), path, box=box, incarnation=f"{box}/2", log_max_bytes=1000)
    await run.start()
    await run.wait()
    await run.stop(1)
    assert sum(file.stat().st_size for file in tmp_path.glob("vllm-head.log*")) <= 3000
    assert path.with_name("vllm-head.log.part").exists()
    assert len(run.tail(50)) == 40


async def test_a_log_folder_that_takes_nothing_does_not_stop_the_engine(tmp_path: Path, box: str) -> None:
    run = Engine(program("print('still here')"), Path("/proc/nowhere/vllm.log"), box=box, incarnation=f"{box}/1")
    await run.start()
    assert await asyncio.wait_for(run.wait(), 30) == 0
    await run.stop(1)
    assert "still here" in run.tail()  # the guard may complain after it
    assert "/proc/nowhere" in run.log.problem


async def test_progress_bars_are_lines_and_no_line_is_endless(tmp_path: Path, box: str) -> None:
    lines: list[str] = []
    source = "import sys; sys.stdout.write('10%\\r20%\\r\\nend\\n' + 'y' * 200000)"
    run = engine(source, tmp_path, box, lines.append)
    await run.start()
    await run.wait()
    await run.stop(1)
    assert lines[:3] == ["10%", "20%", "end"]
    assert sum(len(line) for line in lines[3:]) == 200000
    assert max(len(line) for line in lines) <= 2 * 64 * 1024


async def test_two_stops_at_once_agree(tmp_path: Path, box: str) -> None:
    run = engine(STUBBORN, tmp_path, box)
    await run.start()
    await until(run.tail)
    first, second = await asyncio.gather(run.stop(0.3), run.stop(0.3))
    assert first.confirmed
    assert second.confirmed
    assert first.status == second.status == -signal.SIGKILL


async def test_a_stopped_process_is_ended_too(tmp_path: Path, box: str) -> None:
    """SIGSTOP keeps TERM waiting; KILL does not wait."""
    run = engine("import time; print('up', flush=True); time.sleep(60)", tmp_path, box)
    await run.start()
    await until(run.tail)
    assert run.pid
    os.kill(run.pid, signal.SIGSTOP)
    await until(lambda: ") T " in Path(f"/proc/{run.pid}/stat").read_text())  # until then TERM would still end it
    stopped = await run.stop(0.3)
    assert stopped.killed
    assert stopped.confirmed


async def test_a_start_that_is_called_off_leaves_nothing(tmp_path: Path, box: str) -> None:
    for delay in (0.0, 0.001, 0.005, 0.02):
        run = engine("import time; time.sleep(60)", tmp_path, box)
        start = asyncio.create_task(run.start())
        await asyncio.sleep(delay)
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
        assert (await run.stop(1)).confirmed
        await until(lambda: not living(box))


def test_a_damaged_note_is_read_as_far_as_it_goes_and_names_no_file_elsewhere(tmp_path: Path) -> None:
    note = tmp_path / "note"
    note.write_bytes(b"\xff\xfe\x00\nshm /dev/shm/../../etc/passwd\nshm /dev/shm/psm_1\npid 1 x\npid 12 34\n")
    assert processes.remembered(str(note)) == ({(12, 34)}, {"/dev/shm/psm_1"})


async def test_semaphores_of_a_killed_engine_go_too(tmp_path: Path, box: str) -> None:
    """glibc makes one under another name and links it: /proc/PID/maps shows that name, as deleted."""
    source = """
        import multiprocessing, os, time
        before = set(os.listdir("/dev/shm"))
        lock = multiprocessing.get_context("spawn").Lock()
        print(lock._semlock.name.lstrip("/"), flush=True)
        time.sleep(60)
    """
    run = engine(source, tmp_path, box)
    await run.start()
    await until(run.tail)
    segment = Path("/dev/shm") / f"sem.{run.tail()[0]}"
    assert segment.exists()
    await until(lambda: str(segment) in _text(run.note))
    for pid in run.pids():  # its resource tracker too, which would remove it
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await run.wait()
    stopped = await run.stop(1)
    assert not segment.exists()
    assert str(segment) in stopped.removed


async def test_the_engine_steps_back_for_the_kit_and_its_session_too(tmp_path: Path, box: str) -> None:
    """Where the kernel shares processors between sessions, niceness alone would count within vLLM's session only."""
    one = engine(
        """
        import os
        print("nice", os.nice(0))
        path = "/proc/self/autogroup"
        print("session", open(path).read().split()[-1] if os.path.exists(path) else "none")
        """,
        tmp_path,
        box,
    )
    await one.start()
    await one.wait()
    await one.stop(5)
    assert f"nice {min(19, os.nice(0) + 3)}" in one.tail()
    assert {"session 3", "session none"} & set(one.tail())
