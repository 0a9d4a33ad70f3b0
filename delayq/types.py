"""Types in delayq's signatures that programs do not construct: results, and the literals that arguments take."""

from delayq.message_group import MessageGroup
from delayq.model.backoff import Backoff
from delayq.model.causes import Cause, Causes
from delayq.model.configuration import Configuration, Usage
from delayq.model.consumer_info import ConsumerInfo, Held
from delayq.model.delivery import OnConflict, SentMessage
from delayq.model.envelope import Headers
from delayq.model.event import Event
from delayq.model.handler_progress import HandlerProgress
from delayq.model.health import Trouble
from delayq.model.message_group import OnDead, SentGroup
from delayq.model.message_info import MessageInfo
from delayq.model.middleware import Sending
from delayq.model.occurrence import Missed
from delayq.model.placement import Buried, Cancelled, Rescheduled, State
from delayq.model.positions import Place, Position
from delayq.model.queue_stats import QueueStats, Upcoming
from delayq.model.rates import Rates
from delayq.model.record import (
    DeadPage,
    DeadRecord,
    GroupConsumer,
    GroupInfo,
    GroupReading,
    Published,
    Record,
    Trimmed,
    Unacked,
)
from delayq.model.result import ResultStatus, TaskError, TaskResult
from delayq.model.sample import Sample
from delayq.model.schedule import Schedule, Slot
from delayq.model.task import RetryFor, SendOptions
from delayq.model.task_runs import TaskRuns
from delayq.model.units import Seconds
from delayq.operations.bulk.redrive import Redriven
from delayq.operations.doctor.finding import Finding, Step
from delayq.operations.doctor.report import Report
from delayq.operations.paging import Page
from delayq.runtime.process_pool.job import Pool
from delayq.task import TaskSender
from delayq.topic_group import Group

__all__ = [
    "Backoff",
    "Buried",
    "Cancelled",
    "Cause",
    "Causes",
    "Configuration",
    "ConsumerInfo",
    "DeadPage",
    "DeadRecord",
    "Event",
    "Finding",
    "Group",
    "GroupConsumer",
    "GroupInfo",
    "GroupReading",
    "HandlerProgress",
    "Headers",
    "Held",
    "MessageGroup",
    "MessageInfo",
    "Missed",
    "OnConflict",
    "OnDead",
    "Page",
    "Place",
    "Pool",
    "Position",
    "Published",
    "QueueStats",
    "Rates",
    "Record",
    "Redriven",
    "Report",
    "Rescheduled",
    "ResultStatus",
    "RetryFor",
    "Sample",
    "Schedule",
    "Seconds",
    "SendOptions",
    "Sending",
    "SentGroup",
    "SentMessage",
    "Slot",
    "State",
    "Step",
    "TaskError",
    "TaskResult",
    "TaskRuns",
    "TaskSender",
    "Trimmed",
    "Trouble",
    "Unacked",
    "Upcoming",
    "Usage",
]
