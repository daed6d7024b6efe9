"""Pages from the templates in `templates`: self-contained, with every text escaped."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from umbel.checks import UsageError, printable
from umbel.data.cache import cache_directory
from umbel.files.atomic import write_text
from umbel.report.figures.drawing import CONFIG, VERSION, renderer, spec, style
from umbel.report.figures.panels import described
from umbel.summary import counted

if TYPE_CHECKING:
    from jinja2 import Environment


def page(template: str, title: str, **values: Any) -> str:
    """The whole page. Raises `UsageError` if the libraries of the extra are not installed."""
    try:
        import vl_convert  # noqa: F401
        from markupsafe import Markup
    except ImportError:
        raise UsageError('a report needs an extra: pip install "umbel[report]"') from None
    values |= {"title": title, "sections": [], "vega": Markup(_vega()), "looks": CONFIG}
    return _templates().get_template(template).render(values)


def made_with(session: Mapping[str, Any]) -> str:
    """The time, the machine and the versions."""
    known = {"seconds": "?", "threads": "?", "processors": "?", **session}
    versions = [f"{name} {version}" for name, version in session.get("versions", {}).items()]
    machine = [known.get(name) for name in ("host", "platform")]
    machine += [known.get("cuda") or "no GPU"]
    machine.append(f"{known['threads']} of {known['processors']} processors")
    when = f"{known['began']}, {known['seconds']} s"
    return f"{when}; {', '.join(map(str, filter(None, machine)))}; {', '.join(versions)}"


@cache
def _vega() -> str:
    """The script that draws figures. To make it takes seconds, so each version is kept."""
    import vl_convert

    name = f"vega-lite-{VERSION}-by-{version('vl-convert-python')}.js"
    with suppress(OSError, UsageError):
        return (cache_directory() / name).read_text(encoding="utf-8")
    script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", VERSION))
    assert "</script" not in script.lower()
    assert "<!--" not in script
    with suppress(OSError, UsageError):  # without a cache it is made each time
        cache_directory().mkdir(parents=True, exist_ok=True)
        write_text(cache_directory() / name, script)
    return script


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("umbel.report"),
        autoescape=True,
        extensions=["jinja2.ext.do"],
        finalize=_without_hidden_characters,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    found.filters |= {"anchor": _anchor, "counted": counted, "described": described}
    found.filters |= {"renderer": renderer, "spec": spec, "style": style}
    found.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return found


def _without_hidden_characters(value: object) -> object:
    """Show the characters of a text that would turn or hide what stands beside it."""
    return printable(value, "\n\t") if type(value) is str else value


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")
