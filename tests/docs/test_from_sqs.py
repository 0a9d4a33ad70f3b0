"""docs/from/sqs.md: what its program does with messages of a stand-in for SQS, one for each option."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest

from delayq import Queue
from delayq.types import MessageInfo
from tests.conftest import StartServer
from tests.harness.aws import running_aws
from tests.harness.guides import Program, rows, unpack
from tests.harness.waiting import eventually

pytestmark = pytest.mark.same_on_all_servers

PAGE = "sqs.md"
TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793"
TYPES: dict[str, dict[str, Any]] = {
    "text": {"DataType": "String", "StringValue": "a"},
    "number": {"DataType": "Number", "StringValue": "1.50"},
    "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
}

Use = dict[str, Any]
CARRIED: dict[str, tuple[Use, Callable[[MessageInfo], object], object]] = {  # option: a use, and what delayq then has
    "MessageBody": ({"MessageBody": '"MessageBody"'}, lambda found: found.payload, "MessageBody"),
    "DelaySeconds": ({"DelaySeconds": 1}, lambda found: found.state, "pending"),
    "MessageAttributes": (
        {"MessageAttributes": TYPES},
        lambda found: found.headers,
        {"text": "a", "number": "1.50", "raw": b"\x00\xff"},
    ),
    "MessageSystemAttributes": (
        {"MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "String", "StringValue": TRACE}}},
        lambda found: found.headers,
        {"AWSTraceHeader": TRACE},
    ),
}
BEYOND: dict[str, tuple[Use, str]] = {  # what delayq would not have, and what the program says
    "not JSON": ({"MessageBody": "not JSON"}, "Expecting value"),
    "custom": ({"MessageAttributes": {"a": TYPES["number"] | {"DataType": "Number.float"}}}, "a: Number.float"),
    "reserved": ({"MessageAttributes": {"delayq-task": TYPES["text"]}}, "delayq-task"),
    "infinite": ({"MessageBody": "[Infinity]"}, "Infinity"),
    "twice": ({"MessageBody": '[{"a": 1, "a": 2}]'}, "a name that occurs twice"),
    "rounded": ({"MessageBody": "[0.12345678901234567890]"}, "0.12345678901234567890 would be rounded"),
    "tiny": ({"MessageBody": "[1e-99999999999999999999]"}, "1e-99999999999999999999 would be rounded"),
    "large": ({"MessageBody": "[1e999]"}, "1e999 would be rounded"),
    "surrogate": ({"MessageBody": '"\\ud800"'}, "surrogate"),
    "deep": ({"MessageBody": "[" * 99_999}, "recursion"),
    "trace": ({"MessageAttributes": {"AWSTraceHeader": TYPES["text"]}}, ": AWSTraceHeader"),
}


class Old:
    """SQS, the guide's programs, and the new queue."""

    def __init__(self, variables: dict[str, str], new: str, folder: Path) -> None:
        keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": variables["AWS_REGION"]}
        self.sqs = boto3.client("sqs", endpoint_url=variables["AWS_ENDPOINT_URL"], **keys)
        self.url = self.sqs.create_queue(QueueName="mails", Attributes={"VisibilityTimeout": "1"})["QueueUrl"]
        self.new = Queue("mails", url=new)
        self.program = Program(folder, variables | {"DELAYQ_URL": new})
        unpack(PAGE, folder)

    def send(self, body: str, use: Use) -> str:
        """Send a message; returns its id."""
        options: Use = {"MessageBody": f'"{body}"'} | use
        return str(self.sqs.send_message(QueueUrl=self.url, **options)["MessageId"])

    def waiting(self) -> set[str]:
        """Return the ids of the messages that SQS hands out now, at most 20."""
        answers = [self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10) for _ in range(2)]
        return {message["MessageId"] for answer in answers for message in answer.get("Messages", [])}


@pytest.fixture
def old(start_server: StartServer, tmp_path: Path) -> Iterator[Old]:
    with running_aws() as variables:
        old = Old(variables, start_server(port=True).url, tmp_path)
        yield old
        old.sqs.close()
        old.new.close()


def test_table_has_every_option_of_sqs_and_each_has_a_test():
    service = botocore.session.get_session().get_service_model("sqs")
    options = set(service.operation_model("SendMessage").input_shape.members) - {"QueueUrl"}
    other = {"MessageGroupId": "left behind", "MessageDeduplicationId": "refused"}
    assert rows(PAGE) == dict.fromkeys(CARRIED, "carried") | other
    assert rows(PAGE).keys() == options


@pytest.mark.full
def test_message_with_any_option_is_carried_or_stays_in_sqs(old: Old):
    carried = {option: old.send(option, use) for option, (use, _, _) in CARRIED.items()}
    left = {name: old.send(name, use) for name, (use, _) in BEYOND.items()}
    numbers = old.send("", {"MessageBody": "[1.50, 1e2, 0.1, 9007199254740993]"})

    lines = old.program.forward()

    for option, (_, look, expected) in CARRIED.items():
        assert f'forwarded: "{option}"' in lines
        found = old.new.get(carried[option])
        assert found, option
        assert look(found) == expected, option
    for name, (use, said) in BEYOND.items():
        body = use.get("MessageBody", f'"{name}"')
        (line,) = (line for line in lines if line.startswith(f"left: {body}: "))
        assert said in line
    found = old.new.get(numbers)
    assert found
    assert found.payload == [1.5, 100, 0.1, 2**53 + 1]
    assert lines[-1] == f"{len(left)} left"
    assert old.new.stats().sent == len(CARRIED) + 1 == len(lines) - 1 - len(left)
    assert eventually(lambda: old.waiting() == set(left.values()), 30)


@pytest.mark.full
def test_message_with_a_part_that_the_program_does_not_know_stays_in_sqs(old: Old):
    """The stand-in does not take a MessageGroupId for a standard queue, as SQS does; so SQS's answer is changed."""
    id = old.send("grouped", {})
    (old.program.folder / "grouped.py").write_text(
        "import runpy, boto3\n"
        "client = boto3.client\n"
        "def patched(name):\n"
        "    sqs = client(name)\n"
        "    receive = sqs.receive_message\n"
        "    def receive_message(**options):\n"
        "        answer = receive(**options)\n"
        "        for message in answer.get('Messages', []):\n"
        "            message['Attributes']['MessageGroupId'] = 'a'\n"
        "            message['Newer'] = 'a'\n"
        "        return answer\n"
        "    sqs.receive_message = receive_message\n"
        "    return sqs\n"
        "boto3.client = patched\n"
        "runpy.run_path('forward.py')\n"
    )
    assert old.program.python("grouped.py") == 'left: "grouped": Newer, MessageGroupId\n1 left\n'
    assert old.new.stats().sent == 0
    assert eventually(lambda: old.waiting() == {id}, 30)


@pytest.mark.full
def test_fifo_queue_is_refused_before_anything_is_received(old: Old):
    url = old.sqs.create_queue(QueueName="mails.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    old.sqs.send_message(QueueUrl=url, MessageBody='"a"', MessageGroupId="a", MessageDeduplicationId="a")
    program = old.program.folder / "forward.py"
    program.write_text(program.read_text().replace('QueueName="mails"', 'QueueName="mails.fifo"'))
    old.program.python("forward.py", code=1)
    (message,) = old.sqs.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert old.new.stats().sent == 0


@pytest.mark.full
def test_killed_program_loses_nothing_and_its_next_run_sends_nothing_twice(old: Old):
    """Killed before the send, after it, and after the message was handled too."""
    old.send("now", {})
    old.program.forward_killed("mails", "mails.send", before=True)
    assert eventually(lambda: len(old.waiting()) == 1, 30)
    old.program.forward_killed("mails", "mails.send")
    assert old.new.ack(old.new.receive()) == [True]
    assert old.program.forward() == ['forwarded: "now"', "0 left"]
    assert (old.new.stats().sent, old.new.stats().pending) == (1, 0)
    assert old.program.forward() == ["0 left"]
