"""`snakemake --logger adds`: passes on to `adds.monitor.watch` what Snakemake logs.

Snakemake imports every plugin at every start, so that nothing else is imported here before it is used.
"""

import os
import platform
from logging import WARNING, LogRecord

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

INTERRUPT = ("Terminating processes on user request", "Cancelling snakemake on user request")
INTERRUPTED_JOB = "returned non-zero exit status 130"
"""What Snakemake logs of a job that Ctrl-C has ended before Snakemake took notice of it itself."""

KEPT = ("Nothing to be done", "Will exit after finishing")
"""How lines begin that Snakemake logs without a warning and that people need to see."""

FULL_LOG = "Complete log(s)"


class LogHandler(LogHandlerBase):
    """Shows a run. A dry run looks as ever."""

    def __post_init__(self) -> None:
        """Tell the jobs that this terminal is taken."""
        from adds.machine.logs import WATCHED
        from adds.monitor.watch import Watch

        self._watch = None if self.common_settings.dryrun else Watch()
        if self._watch:
            os.environ[WATCHED] = platform.node()

    def emit(self, record: LogRecord) -> None:
        """Show a record, or what it means for the run."""
        try:
            self._show(record)
        except Exception:
            self.handleError(record)

    def _show(self, record: LogRecord) -> None:
        event, message, watch = getattr(record, "event", None), record.getMessage(), self._watch
        told = vars(record)
        if watch is None:
            print(self.format(record))
        elif event == LogEvent.RUN_INFO:
            watch.begin(told["stats"])
        elif event == LogEvent.JOB_INFO:
            watch.start(told["rule_name"], told["output"], told["log"])
        elif event == LogEvent.PROGRESS:
            watch.finish(told["done"], told["total"])
        elif message.startswith(INTERRUPT) or INTERRUPTED_JOB in message:
            watch.interrupted = True
        elif event == LogEvent.JOB_ERROR:
            watch.fail(told["jobid"], told["rule_name"], told["log"])
        elif (
            record.levelno >= WARNING
            or event == "summary"
            or message.startswith(KEPT)
            or (watch.failed and message.startswith(FULL_LOG))
        ):
            watch.show(self.format(record))

    def close(self) -> None:
        """End the display."""
        if self._watch:
            self._watch.close()
        super().close()

    @property
    def writes_to_stream(self) -> bool:
        """Snakemake's own display is not wanted beside this one."""
        return True

    @property
    def writes_to_file(self) -> bool:
        """Snakemake's log file is written as ever."""
        return False

    @property
    def has_filter(self) -> bool:
        """Snakemake's own is used: --quiet and --verbose mean what they always do."""
        return False

    @property
    def has_formatter(self) -> bool:
        """Snakemake's own is used for what is shown as it is."""
        return False

    @property
    def needs_rulegraph(self) -> bool:
        """Nobody looks at it."""
        return False
