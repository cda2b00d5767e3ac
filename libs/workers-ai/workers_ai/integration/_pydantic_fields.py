"""Settings and parameters as pydantic fields: the bases of the classes of all frameworks."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from pydantic import Field, SecretStr, field_serializer

from workers_ai._settings.checks import DEFAULT_MAX_RETRIES
from workers_ai._settings.gateway import GatewayOptions
from workers_ai._settings.keywords import SETTINGS
from workers_ai._settings.settings import DEADLINE_S
from workers_ai._settings.urls import BatchWorker
from workers_ai._validation import OnBusy
from workers_ai._wire.params import CHAT_PARAMS, EMBED_KEYWORDS
from workers_ai.integration._openai_keywords import translated_arguments
from workers_ai.integration._settings_model import HANDLES, SettingsModel

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from workers_ai._connection import Connection
    from workers_ai._limits.limiter import Limiter
    from workers_ai._wire.params import EmbedKeywords
    from workers_ai.client import AsyncClient, Client
    from workers_ai.retry import RetryEvent, RetryPolicy

    TimeoutField: TypeAlias = float | httpx.Timeout | None
    HttpClient: TypeAlias = httpx.Client | None
    AsyncHttpClient: TypeAlias = httpx.AsyncClient | None
    OnRetry: TypeAlias = Callable[[RetryEvent], None] | None
    Retry: TypeAlias = RetryPolicy | None
    SharedLimiter: TypeAlias = Limiter | None
else:  # pydantic reads annotations when it builds the schema; `httpx` is imported by the first call
    TimeoutField = Any
    HttpClient = AsyncHttpClient = OnRetry = Retry = SharedLimiter = object

__all__ = ["ChatFields", "ConnectionFields", "EmbeddingFields"]

_EMBED_FIELDS: Final = tuple(sorted(EMBED_KEYWORDS - {"kind", "batch_size"}))
_CHAT_FIELDS: Final = tuple(sorted(CHAT_PARAMS - {"tools", "stream_options"}))


class ConnectionFields(SettingsModel):
    """Settings of one connection to Workers AI, and its clients.

    The first call creates the clients. After a setting has changed, the next call creates new ones.
    """

    account_id: str | None = None
    """Cloudflare account id; else ``CLOUDFLARE_ACCOUNT_ID`` or ``CF_ACCOUNT_ID``, or the account in ``base_url``."""
    api_token: SecretStr | None = None
    """API token (aliases ``api_key``, ``auth_token``); else ``CLOUDFLARE_API_TOKEN``, ``CLOUDFLARE_AUTH_TOKEN``,
    ``CF_AI_API_TOKEN`` or ``CF_API_TOKEN``."""
    base_url: str | None = None
    """URL up to and including ``/client/v4`` (alias ``api_base``); else ``CLOUDFLARE_BASE_URL``, else Cloudflare's."""
    gateway: GatewayOptions | str | None = None
    """AI Gateway: an id, or options; else ``CLOUDFLARE_AI_GATEWAY``."""
    timeout: TimeoutField = None
    """Maximum seconds without data from the service, an ``httpx.Timeout``, or ``(connect, read)`` (alias
    ``request_timeout``). Default 300, and 10 to connect."""
    total_timeout: float | None = None
    """Maximum seconds for one call, including waits, retries and reading. None for no bound. With your own
    ``http_client``, a sync call waits for the head of a response as long as its own timeouts allow."""
    max_retries: int = DEFAULT_MAX_RETRIES
    """Tries after the first; 0 sends exactly one request."""
    on_busy: OnBusy = "wait"
    """What to do when the service is at capacity: ``"wait"`` in its capacity queue, ``"retry"`` with backoff, or
    ``"raise"``."""
    reject_if_busy: bool | None = None
    """Alias: True means ``on_busy="raise"``."""
    max_concurrency: int | None = None
    """Requests in flight of this object, in all threads and event loops together."""
    session_id: str | None = None
    """Sent as ``x-session-affinity``, which keeps the prefix of a session cached."""
    default_headers: dict[str, SecretStr] | None = Field(default=None, repr=False)
    """Extra headers of every request; masked like the token."""
    requests_per_minute: int | Literal["documented"] | None = None
    """Limit of the account per task, shared by all objects of the process; ``"documented"`` uses the limits that
    Cloudflare documents (chat 300, embeddings 3,000, paid-only models 20 each, ...). None for no limit. It applies in
    addition to the framework's own ``rate_limiter``, which counts the calls of one object."""
    batch_worker: BatchWorker | str | None = None
    """A deployed Worker that serves as the asynchronous queue: its URL, or URL and headers."""
    allow_insecure_http: bool = False
    """Allow plain http to a host that is not a loopback host."""
    http_client: HttpClient = Field(default=None, exclude=True, repr=False)
    """Your own ``httpx.Client`` for sync calls. URL and credentials are those of the settings; it is never closed."""
    http_async_client: AsyncHttpClient = Field(default=None, exclude=True, repr=False)
    """Your own ``httpx.AsyncClient`` for async calls (alias ``async_http_client``)."""
    binding: object = Field(default=None, exclude=True, repr=False)
    """The ``env.AI`` of a Python Worker in place of HTTP. It requires no account or token, and serves async calls only.
    Dumps and pickles omit it."""
    on_retry: OnRetry = Field(default=None, exclude=True, repr=False)
    """Called before each wait with a :class:`workers_ai.RetryEvent`."""
    retry: Retry = Field(default=None, exclude=True, repr=False)
    """A :class:`workers_ai.RetryPolicy` in place of the default one, which follows ``max_retries``."""
    limiter: SharedLimiter = Field(default=None, exclude=True, repr=False)
    """A :class:`workers_ai.Limiter` instead of the shared limiter of the account."""

    @field_serializer("timeout")
    def _plain_timeout(self, timeout: TimeoutField) -> object:
        return timeout if timeout is None or isinstance(timeout, (int, float)) else timeout.as_dict()

    # In the instance's own dict, since every call reads it. Pydantic does not iterate over names with an underscore.
    @cached_property
    def _clients(self) -> tuple[Client, AsyncClient]:
        """Both clients of this object. The first call creates them and imports their modules."""
        from workers_ai._connection import Connection
        from workers_ai.client import AsyncClient, Client

        connection = Connection.open(
            self._resolve({name: getattr(self, name) for name in (*SETTINGS, "binding")}),
            **{name: getattr(self, name) for name in HANDLES},
        )
        if body := getattr(self, "extra_body", None):
            connection = connection.for_call({"extra_body": body})
        return Client._of(connection), AsyncClient._of(connection)

    def _connection(self) -> Connection:
        """Return the connection that both clients share."""
        return self._clients[0]._connection

    @property
    def client(self) -> Client:
        """The core client with these settings."""
        return self._clients[0]

    @property
    def async_client(self) -> AsyncClient:
        """The core async client with these settings."""
        return self._clients[1]


class ChatFields(ConnectionFields):
    """Parameters of a chat call. Unset parameters are not sent."""

    api: Literal["chat_completions", "run", "responses"] | None = None
    """The route: OpenAI-compatible chat completions (the default), the native ``run``, or ``responses`` (gpt-oss only,
    not streaming). If a parameter is set that exists only on ``run``, that route is the default."""
    temperature: float | None = None
    """Randomness of the answer, 0 to 2 on most models, 0 to 5 on older ones."""
    top_p: float | None = None
    """Nucleus sampling, 0 to 1."""
    top_k: int | None = None
    """Sample from the k most likely tokens; ``run`` only."""
    max_tokens: int | None = None
    """Maximum number of tokens in the answer, reasoning included. The service's default is 256 on older models."""
    stop: list[str] | str | None = None
    """Texts that end the answer (alias ``stop_sequences``)."""
    seed: int | None = None
    """Seed for repeatable answers, where the model supports it."""
    frequency_penalty: float | None = None
    """Penalty for frequent tokens, -2 to 2."""
    presence_penalty: float | None = None
    """Penalty for tokens that occurred, -2 to 2."""
    repetition_penalty: float | None = None
    """Multiplicative penalty for repetition; ``run`` only."""
    logprobs: bool | None = None
    """Whether to return log probabilities."""
    top_logprobs: int | None = None
    """Number of alternatives per token in ``logprobs``."""
    tool_choice: str | bool | dict[str, Any] | None = None
    """Tool to call if tools are given: ``"auto"``, ``"none"``, ``"any"`` (``"required"``, True), a tool's name, or
    OpenAI's dict."""
    parallel_tool_calls: bool | None = None
    """Whether one answer may hold several calls; some models reject the parameter."""
    response_format: dict[str, Any] | None = None
    """JSON mode, ``{"type": "json_object"}``, or a schema, ``{"type": "json_schema", "json_schema": ...}``."""
    reasoning_effort: str | None = ""
    """Effort of a reasoning model; values differ by model. None is sent as null (no reasoning) to models that accept
    null; "" is not sent."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Options of the chat template, such as ``{"enable_thinking": False}``."""
    lora: str | None = None
    """Name or id of a LoRA adapter; ``run`` only."""
    raw: bool | None = None
    """Send the prompt without the chat template; ``run`` only."""
    guided_json: dict[str, Any] | None = None
    """JSON schema for models that accept it by this name; ``run`` only."""

    def _set_params(self) -> dict[str, Any]:
        """Return the parameters that are set. LangChain's copies mark every field as set, so compare the values."""
        values = vars(self)
        params = {name: value for name in _CHAT_FIELDS if (value := values[name]) is not None}
        if (effort := values["reasoning_effort"]) is None:
            params["reasoning_effort"] = None
        elif not effort:
            del params["reasoning_effort"]
        return params

    @classmethod
    def _known(cls, data: dict[str, Any]) -> dict[str, Any]:
        return super()._known(translated_arguments(cls.__name__, data, frozenset(cls.model_fields), cls._extra_keyword))


class EmbeddingFields(ConnectionFields):
    """Options of embedding calls."""

    api: Literal["run", "embeddings"] | None = None
    """The route: the native ``run`` (the default for ``@cf/`` models), or ``/ai/v1/embeddings`` in OpenAI's form, which
    is the default for dynamic routes and third-party ``author/model`` ids. ``pooling``, ``truncate_inputs`` and the
    queue exist only on ``run``."""
    dimensions: int | None = Field(default=None, ge=1)
    """Length of the vectors, for models that can shorten them; ``api="embeddings"`` only."""
    pooling: Literal["mean", "cls"] | None = None
    """Pooling of the bge family. The service's default is ``"mean"``; vectors of the two do not mix."""
    truncate_inputs: bool | None = None
    """Let the service truncate texts that are too long, where the model supports it."""
    query_instruction: str | None = None
    """Instruction for queries, sent in the form that the model expects; documents are sent without it."""
    normalize: bool = False
    """Scale each vector to length 1."""
    empty_text: Literal["raise", "space"] = "raise"
    """What to do with an empty text: raise an error with its index, or embed one space in its place."""
    queue: Literal["never", "overflow", "always"] = "never"
    """Which documents to send through the asynchronous queue: ``"overflow"`` sends those that were rejected at capacity
    (3040), ``"always"`` sends all of them. Queries are always sent directly."""
    deadline_s: float | None = Field(default=DEADLINE_S, gt=0)
    """Seconds to wait for the queue; None for no bound."""
    extra_body: dict[str, Any] | None = None
    """Additional fields of each request body, sent unchanged."""

    def _embed_options(self, kind: Literal["document", "query"], batch_size: int | None) -> EmbedKeywords:
        """Return the options of an embedding call."""
        options = cast("EmbedKeywords", {name: getattr(self, name) for name in _EMBED_FIELDS})
        return {**options, "kind": kind, "batch_size": batch_size}

    def _check_shape(self, model: str) -> None:
        """Check that the route of a model supports these options.

        Raises:
            ConfigurationError: The route lacks an option, or ``queue`` is set and the model has no queue.
        """
        from workers_ai._wire.vectors import EmbedOptions, check_embed_options

        queued = self.queue != "never"
        shape = EmbedOptions(self.pooling, self.truncate_inputs, api=self.api, dimensions=self.dimensions)
        check_embed_options(model, shape, queued=queued)
        if queued:
            from workers_ai._calls.queue import require_queue

            require_queue(model)
