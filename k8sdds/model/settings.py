"""Define the types and limits of the values that settings of trials have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from k8sdds.model import rate_profile
from k8sdds.system import units
from k8sdds.system.strict import Label, Strict, mistake, short_for
from k8sdds.system.yaml_text import nearest

Reliability = Literal["reliable", "best-effort"]
Transport = Literal["unicast", "multicast", "shared-memory"]
SHARED_MEMORY: Final = "shared-memory"
DevShm = Literal["shared", "own"]
Users = Literal["same", "other"]
Layout = Literal["auto", "split", "same", "free"]
Discovery = Literal["auto", "multicast", "peers", "server"]
ReceiveMode = Literal["listener", "waitset", "spin"]
PublishMode = Literal["synchronous", "asynchronous"]
MessageType = Literal[
    "sample",
    "sensor_msgs/msg/Image",
    "sensor_msgs/msg/PointCloud2",
    "sensor_msgs/msg/Imu",
    "std_msgs/msg/ByteMultiArray",
]
IMU: Final = "sensor_msgs/msg/Imu"
IMU_BYTES = 320
"""The only length of a sample in an Imu, which has no array of bytes: that of the message."""
Placement = Literal["spread", "packed", "same-node"] | dict[str, int | str]
SAME_NODE: Final = "same-node"
HOST: Final = "host"
"""The network of pods that use the nodes' own network."""
NO_TUNING: Final = "none"

DEFAULT_TEST, DEFAULT_MIDDLEWARE = "throughput", "cyclonedds"

MAX_PARTICIPANTS = 500
"""Participants of one role in a trial. PerfTest accepts at most 1024 peers. A DDS domain allows 120
participants per address; on pod networks every participant has an address of its own."""
MAX_NODES = 500
MIN_SAMPLE_BYTES = 28
"""Size of a sample without payload: PerfTest's header."""
MAX_SAMPLE_BYTES = 64 * 1024 * 1024
MAX_INSTANCES = 100_000
MAX_WRITERS = 2048
"""Writers of a publisher, over all topics."""
MAX_BATCH_BYTES = 64 * 1024 * 1024


def _reject_bool(value: Any) -> Any:
    # YAML's `yes` and `true` would otherwise count as 1.
    if isinstance(value, bool) or (isinstance(value, list) and any(isinstance(item, bool) for item in value)):
        raise ValueError("expected a number, not true or false")
    return value


def _is_rate_profile(text: str) -> str:
    rate_profile.parse(text)
    return text


TESTS = "tests"
"""Key of the validation context with the known tests: name to the model of its options."""
NETWORK_NAMES = "network_names"
"""Key of the validation context with the names of the known networks."""


class NetworkChoice(Strict):
    """A network of a sweep: its name alone, or a mapping with options."""

    name: str = Field(description="name of the network; `k8sdds list networks` lists them")
    label: Label | None = Field(default=None, description="name in tables and figures")
    mtu: int | None = Field(default=None, ge=576, le=65535, description="MTU of the pods' interfaces")
    engine: Literal["kernel", "userspace", "sleeve", "kube-proxy"] | None = Field(
        default=None,
        description="how an encrypting network processes packets; default: the best that is available. For weavenet"
        " on a cluster: `sleeve`, its datapath in userspace. For Cilium on a cluster: `kube-proxy`, which then handles"
        " the Services",
    )
    attachment: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9][a-z0-9-]{0,62}/[a-z0-9][a-z0-9.-]{0,252}$",
        description="for `multus` and `macvlan`: the NetworkAttachmentDefinition of the pods' second interface, as"
        " NAMESPACE/NAME; default for `macvlan`: that of the profile's `second_network`",
    )

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str, info: ValidationInfo) -> str:
        known: Sequence[str] | None = (info.context or {}).get(NETWORK_NAMES)
        if known is not None and name not in known:
            raise ValueError(f"unknown network {name!r}{nearest(name, list(known))}")
        return name

    @property
    def display_name(self) -> str:
        """The name in tables, figures and `--network`: the label, otherwise the name of the network."""
        return self.label or self.name

    def __str__(self) -> str:
        return self.display_name

    _from_text = short_for("name")


class TestChoice(BaseModel):
    """A test of a sweep: its name alone, or a mapping with the options of the test."""

    # Tests are defined outside this package. The validation context provides their names and options.
    model_config = ConfigDict(extra="allow", frozen=True)
    # pytest would collect a class with this name.
    __test__: ClassVar[bool] = False

    name: str = Field(description="what the participants do and what is measured")

    @property
    def options(self) -> dict[str, Any]:
        """The options that were given."""
        return dict(self.__pydantic_extra__ or {})

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return {"name": value} if isinstance(value, str) else value
        return {key: units.number(key, option) for key, option in value.items()}

    @model_validator(mode="after")
    def _is_known(self, info: ValidationInfo) -> TestChoice:
        tests: Mapping[str, type[BaseModel]] | None = (info.context or {}).get(TESTS)
        if tests is None:
            return self
        if self.name not in tests:
            raise ValueError(f"there is no test {self.name!r}{nearest(self.name, list(tests))}")
        model = tests[self.name]
        for key in self.options.keys() - model.model_fields.keys():
            known = nearest(key, list(model.model_fields))
            raise mistake(f"test {self.name} has no option {key!r}{known}", key)
        model.model_validate(self.options)
        return self

    @model_serializer
    def _as_written(self) -> str | dict[str, Any]:
        return {"name": self.name, **self.options} if self.options else self.name

    def __str__(self) -> str:
        return str(self._as_written())


Number = BeforeValidator(_reject_bool)


class _NoneText:
    """A number, or `none` for null."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            lambda value: None if value == "none" else value, handler(source)
        )

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(core), {"const": "none"}]}


NoneText = _NoneText()
RateProfile = Annotated[str, AfterValidator(_is_rate_profile)]
