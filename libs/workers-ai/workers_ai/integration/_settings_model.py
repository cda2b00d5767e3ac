"""The pydantic base of all classes with settings: unknown keywords, secrets, copies, pickles and the JSON schema.

The fields are in :mod:`workers_ai.integration._pydantic_fields`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from workers_ai._settings.checks import check_handles, check_setting
from workers_ai._settings.keywords import ALIASES, SETTINGS
from workers_ai._settings.secrets import mask_secrets
from workers_ai._settings.settings import Settings
from workers_ai._validation import unknown_keyword
from workers_ai.errors import ConfigurationError
from workers_ai.integration._json_schema import DescribedModel
from workers_ai.integration._openai_keywords import (
    FOREIGN_KEYWORDS,
    TRANSLATED_KEYWORDS,
    check_one_answer,
    warn_ignored,
)

if TYPE_CHECKING:
    from inspect import Signature

    from workers_ai._settings.keywords import SettingKeywords

__all__ = ["HANDLES", "SettingsModel"]

HANDLES = ("http_client", "http_async_client", "binding", "on_retry", "retry", "limiter")
"""Fields that are passed to the clients in addition to the settings. Dumps omit them."""
_HANDLE_ALIASES = {"async_http_client": "http_async_client"}


class _Signature:
    """The signature of a class whose schema pydantic has not built yet; reading it builds the schema."""

    def __get__(self, _: object, owner: type[BaseModel]) -> Signature:
        owner.model_rebuild()
        if "__signature__" not in vars(owner):
            raise AttributeError("__signature__")  # `inspect` then reads the constructor
        signature: Signature = owner.__signature__
        return signature


class SettingsModel(DescribedModel):
    """Base of the classes with settings.

    - An unknown keyword raises an error that suggests the most similar one.
    - Secrets are masked on construction, assignment and copying.
    - A pickle contains the token only if it was passed explicitly.
    - Fields of this process (HTTP clients, callbacks) are shared by copies and omitted from pickles and dumps.
    """

    # The schema is built with the first object, so that importing the class stays fast.
    model_config = ConfigDict(
        arbitrary_types_allowed=True, populate_by_name=True, hide_input_in_errors=True, defer_build=True
    )

    _extra_keyword: ClassVar[str] = "extra_body"
    """Keyword for extra body fields, for the error about an unknown keyword."""
    _keyword_aliases: ClassVar[dict[str, str]] = {**ALIASES, **_HANDLE_ALIASES, "extra_headers": "default_headers"}
    """Other names of fields."""
    _ignored_keywords: ClassVar[frozenset[str]] = frozenset()
    """Keywords that are accepted without effect, such as the class name in a dump."""
    _process_local: ClassVar[frozenset[str]] = frozenset(HANDLES) - {"retry"}
    """Fields whose values belong to this process: pickles omit them, copies share them."""
    _not_dumped: ClassVar[frozenset[str]] = frozenset(SETTINGS) - {"account_id", "base_url", "allow_insecure_http"}
    """Fields that contain a secret, or that change how requests are sent but not the results."""

    __signature__: ClassVar[Any] = _Signature()

    _token_from_env: bool = PrivateAttr(default=False)

    # Each method of pydantic below is replaced for the reason in its comment.

    # Pydantic's own accepts no positional model and no alias, and its errors show values.
    def __init__(self, *args: Any, **data: Any) -> None:
        self._mask(data)
        data = self._known(self._with_model(args, data))
        check_handles(*map(data.get, ("http_client", "http_async_client", "retry", "limiter")))
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

    @classmethod
    def _mask(cls, data: dict[str, Any]) -> None:
        """Mask secrets among the arguments of the constructor in place, and remove the values of unknown keywords."""
        mask_secrets(data, _accepted(cls))

    @classmethod
    def _with_model(cls, args: tuple[object, ...], data: dict[str, object]) -> dict[str, object]:
        """Return the keywords, with a positional model under its field name.

        Raises:
            ConfigurationError: There are other positional arguments, two models, or no model field.
        """
        if not args:
            return data
        field = next((name for name in ("model", "model_name") if name in cls.model_fields), None)
        model, *others = args
        if others or field is None or not isinstance(model, str):
            raise ConfigurationError(
                f"{cls.__name__} accepts only the model by position: pass the other arguments by keyword"
            )
        if doubled := {"model", "model_name"} & data.keys():
            raise ConfigurationError(
                f"{cls.__name__} received the model twice, by position and as {min(doubled)}: pass it once"
            )
        return {field: model, **data}

    @classmethod
    def _known(cls, data: dict[str, object]) -> dict[str, object]:
        """Return the keywords under their field names. Those of other providers are ignored with a warning.

        Raises:
            ConfigurationError: A keyword is unknown, one field is given twice, or ``n`` is not 1.
        """
        known = _keywords(cls)
        named: dict[str, object] = {}
        ignored: list[str] = []
        for name, value in data.items():
            field = cls._keyword_aliases.get(name, name)
            if name in cls._ignored_keywords:
                continue
            if field in known:
                if field in named and named[field] != value:
                    raise ConfigurationError(f"{cls.__name__} received {field} twice, once as {name}: pass it once")
                named[field] = value
            elif name == "n":
                check_one_answer(cls.__name__, value)
            elif name not in FOREIGN_KEYWORDS:
                raise unknown_keyword(cls.__name__, name, {*known, *cls._keyword_aliases}, cls._extra_keyword)
            elif value is not None:
                ignored.append(name)
        warn_ignored(cls.__name__, ignored, cls._extra_keyword)
        return named

    @staticmethod
    def _resolve(data: Mapping[str, object]) -> Settings:
        given = {name: data[name] for name in SETTINGS if name in data}
        return Settings.resolve(**cast("SettingKeywords", given), binding=data.get("binding") is not None)

    def _checked(self, name: str, value: object) -> object:
        """Return a value of a field, checked and converted as by the constructor."""
        if name not in SETTINGS or (value is None and name in ("timeout", "default_headers", "on_busy")):
            return value
        return check_setting(name, value, allow_insecure_http=bool(getattr(self, "allow_insecure_http", False)))

    # Without it, an assigned token stays plain text, and the clients keep the settings from before.
    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, self._checked(name, value))
        if name in SETTINGS or name in HANDLES or name == "extra_body":
            vars(self).pop("_clients", None)

    # Without it, aliases and plain secrets in `update` reach the copy, and both objects share clients and gate.
    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Any:
        """Return a copy with fields changed, as pydantic does. The copy creates its own clients."""
        given = {self._keyword_aliases.get(name, name): value for name, value in (update or {}).items()}
        checked = {name: self._checked(name, value) for name, value in given.items()}
        copied = super().model_copy(update=checked, deep=deep)
        vars(copied).pop("_clients", None)
        return copied

    # HTTP clients and callbacks cannot be copied.
    def __deepcopy__(self, memo: dict[int, object] | None = None) -> Any:
        shared = {id(value): value for name in self._process_local if (value := getattr(self, name)) is not None}
        return super().__deepcopy__({**(memo or {}), **shared})

    # HTTP clients and callbacks cannot be pickled, and a token of the environment must not be.
    def __getstate__(self) -> dict[Any, Any]:
        # Pydantic's own state. LlamaIndex's deletes what cannot be pickled from the original object
        # (https://github.com/run-llama/llama_index/issues/22578).
        state = BaseModel.__getstate__(self)
        left_out = {*self._process_local, "_clients"}
        fields = {name: value for name, value in state["__dict__"].items() if name not in left_out}
        if self._token_from_env:
            fields["api_token"] = None
        return {**state, "__dict__": fields}

    # Reads a token of the environment on the other side, and raises there if it is missing.
    def __setstate__(self, state: dict[Any, Any]) -> None:
        fields = type(self).model_fields
        local = {name: fields[name].get_default(call_default_factory=True) for name in self._process_local}
        BaseModel.__setstate__(self, {**state, "__dict__": {**local, **state["__dict__"]}})
        if vars(self)["api_token"] is None:
            self.__setattr__("api_token", self._resolve({"account_id": vars(self)["account_id"]}).api_token)


@functools.cache
def _keywords(cls: type[BaseModel]) -> frozenset[str]:
    """Return the names and aliases of all fields."""
    return frozenset(name for field, info in cls.model_fields.items() for name in (field, info.alias) if name)


@functools.cache
def _accepted(cls: type[SettingsModel]) -> frozenset[str]:
    """Return all keywords of the constructor, including those without effect."""
    others = FOREIGN_KEYWORDS | TRANSLATED_KEYWORDS | cls._ignored_keywords
    return _keywords(cls) | others | cls._keyword_aliases.keys()


def _configuration_error(owner: str, exc: ValidationError) -> ConfigurationError:
    """Return pydantic's findings as an error, without the values: they may include the token."""
    found = "; ".join(
        ": ".join(filter(None, [".".join(map(str, error["loc"])), error["msg"].removeprefix("Value error, ")]))
        for error in exc.errors(include_input=False)
    )
    return ConfigurationError(f"{owner} has malformed options: {found}")
