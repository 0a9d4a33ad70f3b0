"""The report of an examination, as it grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from delayq.operations.doctor.finding import Finding, Step
from delayq.operations.doctor.server import ServerHealth
from delayq.operations.doctor.versions import Versions


@dataclass(slots=True)
class Report:
    """What an examination found.

    Attributes:
        on_step: called with each step.
        shards: how many were checked; 0 if the queue could not be opened.
        messages: how many were checked, including dead letters and garbage.
        total: how many there were at the start.
        servers: those that hold the shards.
        versions: those at work; None if the queue could not be opened.
        findings: in the order in which they were found.
    """

    queue: str
    on_step: Callable[[Step], None] = field(repr=False)
    shards: int = 0
    messages: int = 0
    total: int = 0
    servers: list[ServerHealth] = field(default_factory=list)
    versions: Versions | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        """The errors that were not repaired."""
        return [finding for finding in self.findings if finding.severity == "error" and not finding.repaired]

    @property
    def warnings(self) -> list[Finding]:
        """The warnings that were not repaired."""
        return [finding for finding in self.findings if finding.severity == "warning" and not finding.repaired]

    @property
    def healthy(self) -> bool:
        """Whether no error is left; warnings may be."""
        return not self.errors

    def tell(self, finding: Finding) -> None:
        """Add a finding."""
        self.findings.append(finding)
        self.say(str(finding), finding)

    def say(self, text: str, finding: Finding | None = None) -> None:
        """Report a step."""
        self.on_step(Step(text, self.messages, self.total, finding))


def silent(step: Step) -> None:
    """Report nothing."""
