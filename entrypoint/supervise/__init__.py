"""The engine as a child: a guard process between kit and vLLM, a size-capped log, and proof that it is gone.
guard.py runs as its own small process; processes.py reads and ends processes; engine.py is what the boot uses.
"""

from entrypoint.supervise.engine import Engine, Gone, Stopped, confirm_gone, note_path
from entrypoint.supervise.log import log_path

__all__ = ["Engine", "Gone", "Stopped", "confirm_gone", "log_path", "note_path"]
