"""What is known of a server, and what its errors mean."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import redis
import structlog
from redis import exceptions
from redis.cluster import RedisCluster

from delayq import errors
from delayq.errors import DelayqError

Client: TypeAlias = "redis.Redis | RedisCluster"
