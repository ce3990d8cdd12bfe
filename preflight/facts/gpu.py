"""What NVML says of the GPUs: clock limits, temperature, driver, who else uses them. Never torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preflight.facts.sysfs import read

# nvmlClocksEventReason*: bit -> name. Idle and application settings are no fault and left out.
LIMITS: Mapping[int, str] = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


@dataclass(frozen=True)
class Gpu:
    """One GPU. Memory is not among it: on GB10 NVML answers N/A.

    clock, max_clock  SM clock in MHz; 0 unknown
    limits            names of LIMITS that hold now
    processes         (pid, name) of everything that computes on it
    """

    name: str
    driver: str
    temperature: int
    clock: int
    max_clock: int
    limits: tuple[str, ...] = ()
    processes: tuple[tuple[int, str], ...] = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Gpu:
        """The GPU of a recording. Raises ValueError, KeyError or TypeError on anything else."""
        return cls(
            name=str(data["name"]),
            driver=str(data["driver"]),
            temperature=int(data["temperature"]),
            clock=int(data["clock"]),
            max_clock=int(data["max_clock"]),
            limits=tuple(str(name) for name in data["limits"]),
            processes=tuple((int(pid), str(name)) for pid, name in data["processes"]),
        )


def count() -> int | None:
    """Devices NVML counts; None where its library is not installed or finds no driver."""
    found = gpus()
    return None if found is None else len(found)


def gpus() -> tuple[Gpu, ...] | None:
    """All GPUs of this machine; None where there is no NVML."""
    try:
        import pynvml  # here: loading it costs start-up time, and a bare host may be without it
    except ImportError:
        return _from_proc()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        return tuple(_gpu(pynvml, driver, index) for index in range(int(pynvml.nvmlDeviceGetCount())))
    finally:
        pynvml.nvmlShutdown()


def _from_proc(root: Path = Path("/proc/driver/nvidia")) -> tuple[Gpu, ...] | None:
    """What the driver's own files say, where Python has no NVML (a bare host); None without a driver."""
    folders = sorted(root.glob("gpus/*"))
    if not folders:
        return None
    words = read(root / "version").split("Kernel Module")[-1].split()
    driver = next((word for word in words if word[:1].isdigit()), "")
    lines = (line for folder in folders for line in read(folder / "information").splitlines())
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return tuple(Gpu(name, driver, 0, 0, 0) for name in names)


def _gpu(nvml: Any, driver: str, index: int) -> Gpu:
    device = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(name: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, name)(device, *arguments)
        except nvml.NVMLError:  # not supported on this GPU
            return None

    held = int(ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0)
    return Gpu(
        name=_text(ask("nvmlDeviceGetName")),
        driver=driver,
        temperature=int(ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU) or 0),
        clock=int(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM) or 0),
        max_clock=int(ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM) or 0),
        limits=tuple(name for bit, name in LIMITS.items() if held & bit),
        processes=tuple((int(one.pid), _name(one.pid)) for one in ask("nvmlDeviceGetComputeRunningProcesses") or ()),
    )


def _name(pid: int) -> str:
    return read(Path(f"/proc/{pid}/comm")) or "a process of another container"


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
