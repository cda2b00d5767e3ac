"""Settings and parameters as fields of pydantic models: the bases that the classes of all frameworks share."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, ValidationError, field_serializer

from workers_ai._settings.gateway import gateway_options
from workers_ai._settings.settings import (
    DEADLINE_S,
    DEFAULT_MAX_RETRIES,
    BatchWorker,
    GatewayOptions,
    Settings,
    check_clients,
    check_max_retries,
    check_timeout,
    mask_secrets,
    masked_headers,
)
from workers_ai._settings.urls import batch_worker_options
from workers_ai._validation import OnBusy, unknown_keyword
from workers_ai._wire.params import CHAT_PARAMS
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from inspect import Signature

    from workers_ai._connection import Connection
    from workers_ai.client import AsyncClient, Client

__all__ = ["ChatFields", "ConnectionFields", "EmbeddingFields"]

_SETTINGS = (
    "account_id",
    "api_token",
    "base_url",
    "gateway",
    "timeout",
    "total_timeout",
    "max_retries",
    "on_busy",
    "reject_if_busy",
    "max_concurrency",
    "session_id",
    "default_headers",
    "requests_per_minute",
    "batch_worker",
    "allow_insecure_http",
)
_HANDLES = ("http_client", "http_async_client", "binding", "on_retry")
"""What belongs to this process: in no dump and no pickle, and shared by copies."""
_CHAT_FIELDS: Final = tuple(sorted(CHAT_PARAMS - {"tools", "stream_options"}))


class _Signature:
    """The signature of a class that pydantic has not built yet: building it is left until somebody asks."""

    def __get__(self, _: object, owner: type[BaseModel]) -> Signature:
        owner.model_rebuild()
        signature: Signature = vars(owner)["__signature__"].__get__(None, owner)
        return signature


class ConnectionFields(BaseModel):
    """Fields, checks and clients of one connection to Workers AI.

    A keyword that is not known raises and names the nearest one that is. The token shows in no repr and no dump; a
    pickle carries it only where it was given explicitly. Clients are made at the first call, and again after a setting
    was changed.
    """

    # Built at the first object of a class: an import that only names the class does not pay for it.
    model_config = ConfigDict(
        arbitrary_types_allowed=True, populate_by_name=True, hide_input_in_errors=True, defer_build=True
    )

    extra_keyword: ClassVar[str] = "extra_body"
    """Where extra body fields go, for the error about an unknown keyword."""
    keyword_aliases: ClassVar[dict[str, str]] = {"api_key": "api_token", "request_timeout": "timeout"}
    """Other names of fields."""
    ignored_keywords: ClassVar[frozenset[str]] = frozenset()
    """Keywords that a dump holds besides the fields."""
    process_local: ClassVar[frozenset[str]] = frozenset(_HANDLES)
    """Fields that a pickle leaves out and copies share: what they hold belongs to this process."""
    knobs: ClassVar[frozenset[str]] = frozenset(_SETTINGS) - {"account_id", "base_url", "allow_insecure_http"}
    """Fields that hold a secret or change only how requests are sent, never what comes back."""

    __signature__: ClassVar[Any] = _Signature()

    account_id: str | None = None
    """Cloudflare account id; else ``CLOUDFLARE_ACCOUNT_ID`` or ``CF_ACCOUNT_ID``."""
    api_token: SecretStr | None = None
    """API token (alias ``api_key``); else ``CLOUDFLARE_API_TOKEN``, ``CLOUDFLARE_AUTH_TOKEN``, ``CF_AI_API_TOKEN`` or
    ``CF_API_TOKEN``."""
    base_url: str | None = None
    """URL up to and including ``/client/v4``; else ``CLOUDFLARE_BASE_URL``, else Cloudflare's."""
    gateway: GatewayOptions | str | None = None
    """AI Gateway: an id, or options; else ``CLOUDFLARE_AI_GATEWAY``."""
    timeout: Any = None
    """Seconds that the service may be silent, an ``httpx.Timeout``, or ``(connect, read)`` (alias ``request_timeout``).
    Default 300, and 10 to connect."""
    total_timeout: float | None = None
    """Seconds that one call may take in all: waits, retries and reading of the answer. None for no bound."""
    max_retries: int = DEFAULT_MAX_RETRIES
    """Tries after the first; 0 sends exactly one request."""
    on_busy: OnBusy = "wait"
    """What a busy service means: ``"wait"`` in its capacity queue, ``"retry"`` here with backoff, or ``"raise"``."""
    reject_if_busy: bool | None = None
    """True is another way to say ``on_busy="raise"``."""
    max_concurrency: int | None = None
    """Requests in flight of this object, in all threads and event loops together."""
    session_id: str | None = None
    """Sent as ``x-session-affinity``, which keeps a session's prefix cached."""
    default_headers: dict[str, SecretStr] | None = Field(default=None, repr=False)
    """Extra headers of every request; masked like the token."""
    requests_per_minute: int | Literal["documented"] | None = None
    """Own limit per task, shared by all objects of the account; ``"documented"`` for the limits that Cloudflare
    documents (chat 300, embeddings 3,000, paid-only models 20 each, ...); None for none."""
    batch_worker: BatchWorker | str | None = None
    """A deployed Worker that is the queue, in place of the REST route: its URL, or URL and headers."""
    allow_insecure_http: bool = False
    """Allow plain http to a host that is not this machine."""
    http_client: Any = Field(default=None, exclude=True, repr=False)
    """Your own ``httpx.Client`` for sync calls; URL and credentials still come from here, and it is never closed."""
    http_async_client: Any = Field(default=None, exclude=True, repr=False)
    """Your own ``httpx.AsyncClient`` for async calls."""
    binding: Any = Field(default=None, exclude=True, repr=False)
    """The ``env.AI`` of a Python Worker in place of HTTP: then no account or token is needed, and calls are async only.
    It stays out of dumps and pickles."""
    on_retry: Any = Field(default=None, exclude=True, repr=False)
    """Called before each wait with a :class:`workers_ai.RetryEvent`."""

    _token_from_env: bool = PrivateAttr(default=False)

    def __init__(self, *args: Any, **data: Any) -> None:
        mask_secrets(data)
        data = self._known(self._with_model(args, data))
        check_clients(data.get("http_client"), data.get("http_async_client"))
        settings = self._resolve(data)
        data |= {"account_id": settings.account_id, "api_token": settings.api_token, "base_url": settings.base_url}
        if data.get("timeout") is not None:
            data["timeout"] = settings.timeout
        if "max_retries" in data:
            data["max_retries"] = settings.max_retries
        for name in ("gateway", "batch_worker"):
            if (options := getattr(settings, name)) is not None:
                data[name] = options
        try:
            super().__init__(**data)
        except ValidationError as exc:
            raise _configuration_error(type(self).__name__, exc) from None
        self._token_from_env = settings.token_from_env

    @field_serializer("timeout")
    def _plain_timeout(self, timeout: Any) -> Any:
        return timeout.as_dict() if hasattr(timeout, "as_dict") else timeout

    @classmethod
    def _with_model(cls, args: tuple[Any, ...], data: dict[str, Any]) -> dict[str, Any]:
        """Arguments with the one that may be given by position: the model.

        Raises:
            ConfigurationError: There are more of them, or this class has no model, or the model is given twice.
        """
        if not args:
            return data
        field = next((name for name in ("model", "model_name") if name in cls.model_fields), None)
        if len(args) > 1 or field is None or not isinstance(args[0], str):
            raise ConfigurationError(f"{cls.__name__} takes keyword arguments, and the model alone by position")
        if doubled := {"model", "model_name"} & data.keys():
            raise ConfigurationError(f"{cls.__name__} was given the model twice, by position and as {min(doubled)}")
        return {field: args[0], **data}

    @classmethod
    def _known(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Arguments under their field names.

        Raises:
            ConfigurationError: A keyword is not known, or one field is given twice.
        """
        known = {name for field, info in cls.model_fields.items() for name in (field, info.alias) if name}
        named: dict[str, Any] = {}
        for name, value in data.items():
            field = cls.keyword_aliases.get(name, name)
            if name in cls.ignored_keywords:
                continue
            if field not in known:
                raise unknown_keyword(cls.__name__, name, {*known, *cls.keyword_aliases}, cls.extra_keyword)
            if field in named and named[field] != value:
                raise ConfigurationError(f"{cls.__name__} was given {field} twice, once as {name}")
            named[field] = value
        return named

    @staticmethod
    def _resolve(data: dict[str, Any]) -> Settings:
        given = {name: data[name] for name in _SETTINGS if name in data}
        return Settings.resolve(**given, binding=data.get("binding") is not None)

    # Kept in the instance's own dict, under a name that pydantic's iteration passes over: it is read at every call.
    @cached_property
    def _faces(self) -> tuple[Client, AsyncClient]:
        """Both clients of this object, made, and their modules imported, at the first call."""
        from workers_ai._connection import Connection
        from workers_ai.client import AsyncClient, Client

        connection = Connection.open(
            self._resolve({name: getattr(self, name) for name in (*_SETTINGS, "binding")}),
            **{name: getattr(self, name) for name in _HANDLES},
        )
        return Client._of(connection), AsyncClient._of(connection)

    def _connection(self) -> Connection:
        """Return the connection that both clients share."""
        return self._faces[0]._connection

    @property
    def client(self) -> Client:
        """The core client with these settings."""
        return self._faces[0]

    @property
    def async_client(self) -> AsyncClient:
        """The core async client with these settings."""
        return self._faces[1]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SETTINGS:
            value = _settled(name, value, self)
        super().__setattr__(name, value)
        if name in _SETTINGS or name in _HANDLES:
            vars(self).pop("_faces", None)

    def model_copy(self, *, update: Any = None, deep: bool = False) -> Any:
        """Copy, as pydantic does; the copy makes its own clients."""
        update = {name: _settled(name, value, self) for name, value in (update or {}).items()}
        copied = super().model_copy(update=update, deep=deep)
        vars(copied).pop("_faces", None)
        return copied

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Any:
        shared = {id(value): value for name in self.process_local if (value := getattr(self, name)) is not None}
        return super().__deepcopy__({**(memo or {}), **shared})

    def __getstate__(self) -> dict[Any, Any]:
        # Pydantic's own state: LlamaIndex's removes what does not pickle from the living object
        # (https://github.com/run-llama/llama_index/issues/22578).
        state = BaseModel.__getstate__(self)
        fields = {
            name: value for name, value in state["__dict__"].items() if name not in {*self.process_local, "_faces"}
        }
        if self._token_from_env:
            fields["api_token"] = None
        return {**state, "__dict__": fields}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        kinds = type(self).model_fields
        local = {name: kinds[name].get_default(call_default_factory=True) for name in self.process_local}
        BaseModel.__setstate__(self, {**state, "__dict__": {**local, **state["__dict__"]}})
        if self.api_token is None:
            self.api_token = self._resolve({"account_id": self.account_id}).api_token


class ChatFields(ConnectionFields):
    """Parameters of a chat call. Only what was set is sent."""

    api: Literal["chat_completions", "run", "responses"] | None = None
    """The route: OpenAI-compatible chat completions (the default), the native ``run``, or ``responses`` (gpt-oss only,
    not streaming). With a parameter set that exists only on ``run``, that route is the default."""
    temperature: float | None = None
    """Randomness of the answer, 0 to 2 on most models, 0 to 5 on older ones."""
    top_p: float | None = None
    """Nucleus sampling, 0 to 1."""
    top_k: int | None = None
    """Sample from the k likeliest tokens; ``run`` only."""
    max_tokens: int | None = None
    """Tokens of the answer at most, reasoning included. The service's default is 256 on older models."""
    stop: list[str] | str | None = None
    """Texts that end the answer (alias ``stop_sequences``)."""
    seed: int | None = None
    """Seed for answers that can be repeated, where the model honours it."""
    frequency_penalty: float | None = None
    """Penalty for frequent tokens, -2 to 2."""
    presence_penalty: float | None = None
    """Penalty for tokens that occurred, -2 to 2."""
    repetition_penalty: float | None = None
    """Multiplicative penalty for repetition; ``run`` only."""
    logprobs: bool | None = None
    """Whether to return log probabilities."""
    top_logprobs: int | None = None
    """How many alternatives per token ``logprobs`` lists."""
    tool_choice: str | bool | dict[str, Any] | None = None
    """Which tool to call where tools are given: ``"auto"``, ``"none"``, ``"any"`` (``"required"``, True), its name, or
    an OpenAI dict."""
    parallel_tool_calls: bool | None = None
    """Whether one answer may hold several calls; some models refuse the parameter."""
    response_format: dict[str, Any] | None = None
    """JSON mode, ``{"type": "json_object"}``, or a schema, ``{"type": "json_schema", "json_schema": ...}``."""
    reasoning_effort: str | None = ""
    """How much a reasoning model thinks; values differ by model. None is sent as null: not at all. "" is not sent."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Switches of the chat template, such as ``{"enable_thinking": False}``."""
    lora: str | None = None
    """Name or id of a LoRA adapter; ``run`` only."""
    raw: bool | None = None
    """Send the prompt without the chat template; ``run`` only."""
    guided_json: dict[str, Any] | None = None
    """JSON schema for models that take it by this name; ``run`` only."""

    def _set_params(self) -> dict[str, Any]:
        """Return the parameters that were set. Copies by plain fields, as LangChain makes them, set no more."""
        values = vars(self)
        params = {name: value for name in _CHAT_FIELDS if (value := values[name]) is not None}
        if (effort := values["reasoning_effort"]) is None:
            params["reasoning_effort"] = None
        elif not effort:
            del params["reasoning_effort"]
        return params


class EmbeddingFields(ConnectionFields):
    """What shapes vectors, and how documents get to the service."""

    api: Literal["run", "embeddings"] | None = None
    """The route: the native ``run`` (the default for ``@cf/`` models), or ``/ai/v1/embeddings`` in OpenAI's form, which
    is the default for dynamic routes and third-party ``author/model`` ids. ``pooling``, ``truncate_inputs`` and the
    queue exist only on ``run``."""
    dimensions: int | None = Field(default=None, ge=1)
    """Length of the vectors, for models that can shorten them; ``api="embeddings"`` only."""
    pooling: Literal["mean", "cls"] | None = None
    """How the bge family makes one vector of a text. The service's default is ``"mean"``; the two do not mix."""
    truncate_inputs: bool | None = None
    """Let the service cut texts that are too long, where the model has that option."""
    query_instruction: str | None = None
    """Instruction for queries, in the form the model wants it; documents never get one."""
    normalize: bool = False
    """Scale each vector to length 1."""
    empty_text: Literal["raise", "space"] = "raise"
    """What an empty text means: an error that names its index, or one space embedded in its place."""
    queue: Literal["never", "overflow", "always"] = "never"
    """Whether documents go through the asynchronous queue: ``"overflow"`` sends those there that a busy service
    rejects, ``"always"`` all of them. Queries never wait in the queue."""
    deadline_s: float | None = Field(default=DEADLINE_S, gt=0)
    """Seconds to wait for the queue; None for no end."""

    def _check_shape(self, model: str) -> None:
        """Check that the route of a model knows these options.

        Raises:
            ConfigurationError: It does not, or the model has no queue and ``queue`` asks for one.
        """
        from workers_ai._wire.vectors import EmbedOptions, check_embed_options

        queued = self.queue != "never"
        shape = EmbedOptions(self.pooling, self.truncate_inputs, api=self.api, dimensions=self.dimensions)
        check_embed_options(model, shape, queued=queued)
        if queued:
            from workers_ai._calls.queue import require_queue

            require_queue(model)


def _settled(name: str, value: Any, owner: ConnectionFields) -> Any:
    """Return the value of a setting in the form that construction gives it: checked, and masked if it is a secret.

    Raises:
        ConfigurationError: The value is malformed.
    """
    given = {name: value}
    mask_secrets(given)
    value = given[name]
    if name == "gateway":
        return gateway_options(value)
    if name == "batch_worker":
        return batch_worker_options(value, owner.allow_insecure_http)
    if name == "default_headers":
        return None if value is None else masked_headers(name, value)
    if name == "timeout":
        return None if value is None else check_timeout(value)
    return check_max_retries(value) if name == "max_retries" else value


def _configuration_error(owner: str, exc: ValidationError) -> ConfigurationError:
    """The same findings without the values, among which the token may be."""
    found = "; ".join(
        ": ".join(filter(None, [".".join(map(str, error["loc"])), error["msg"].removeprefix("Value error, ")]))
        for error in exc.errors(include_input=False)
    )
    return ConfigurationError(f"{owner} has malformed options: {found}")
