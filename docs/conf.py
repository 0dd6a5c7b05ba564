"""Settings of the site, built by `make docs`. Everything is local; no page loads anything from elsewhere."""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

import orthograd

DOCS = Path(__file__).parent
ROOT = DOCS.parent
# For the executed pages, whose kernels inherit the environment: the command, the tables, the records.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(DOCS / "_code"), os.environ.get("PYTHONPATH")]))
os.environ["ORTHOGRAD_DOCS"] = str(DOCS)

project = "orthograd"
author = "The orthograd developers"
project_copyright = author
version = release = orthograd.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxcontrib.typer",
]
exclude_patterns = ["_build", "_code", "results", "inventories"]

# Pages
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "auto"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_timeout = 300
nb_merge_streams = True
nb_render_markdown_format = "myst"  # tables
nb_mime_priority_overrides = [("html", "image/svg+xml", 5)]

# Reference
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
default_role = "py:obj"
maximum_signature_line_length = 90
autodoc_type_aliases = {"ArrayLike": "numpy.typing.ArrayLike"}
napoleon_numpy_docstring = False
napoleon_use_rtype = False
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", "inventories/python.inv"),
    "torch": ("https://docs.pytorch.org/docs/stable", "inventories/torch.inv"),
    "numpy": ("https://numpy.org/doc/stable", "inventories/numpy.inv"),
}
nitpicky = True
nitpick_ignore_regex = [("py:class", r"(matplotlib|jax|optax)\..*")]  # no inventory is kept of these

# Theme
html_theme = "furo"
html_title = f"orthograd {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

REPOSITORY = ""
"""Address of the repository's files. Empty: links to them become text that names the file."""
PUBLIC = ("orthograd", "orthograd.calibration", "orthograd.statistics", "orthograd.diagnosis")


def write_mathml(self: Any, node: nodes.Element) -> None:
    """Write a formula as MathML, which browsers draw without scripts."""
    is_block = isinstance(node, nodes.math_block)
    formula = tex2mathml(node.astext(), as_block=is_block)
    self.body.append(f'<div class="math">{formula}</div>' if is_block else formula)
    raise nodes.SkipNode


class RepositoryLinks(SphinxTransform):
    """Resolve links to files of the repository that are no pages. They are not copied: the records alone are 9 MB."""

    default_priority = 500

    def apply(self, **kwargs: Any) -> None:
        """Replace each link by an address, or by its text with the path of the file as a tooltip."""
        for node in list(self.document.findall(self._is_file)):
            path = self._path(node)
            text = node.astext()
            if REPOSITORY:
                new: nodes.Element = nodes.reference("", text, refuri=f"{REPOSITORY}/{path}")
            else:
                new = nodes.abbreviation("", text, explanation=f"{path} in the repository")
            node.replace_self(new)

    def _is_file(self, node: nodes.Node) -> bool:
        if isinstance(node, addnodes.download_reference):
            return True
        is_link = isinstance(node, addnodes.pending_xref) and node.get("reftype") == "myst"
        return is_link and node["reftarget"] not in self.env.found_docs and self._path(node) != ""

    def _path(self, node: nodes.Element) -> str:
        name = node["reftarget"].partition("#")[0]
        here = (DOCS / self.env.docname).parent
        for path in (here / name, DOCS / name, here / f"{name}.md", DOCS / f"{name}.md"):
            if name and path.exists() and path.resolve().is_relative_to(ROOT):
                return path.resolve().relative_to(ROOT).as_posix()
        return ""


def public_names() -> dict[str, str]:
    """Map each public object's bare name and the name of its home module to its name in the reference."""
    names = {}
    for module in PUBLIC[::-1]:  # orthograd.Recorder rather than orthograd.diagnosis.Recorder
        for name in import_module(module).__all__:
            value = getattr(import_module(module), name)
            names[name] = f"{module}.{name}"
            names[f"{getattr(value, '__module__', module)}.{name}"] = f"{module}.{name}"
    return names


def resolve_public(app: Sphinx, env: Any, node: nodes.Element, text: nodes.Element) -> nodes.Node | None:
    """Link annotations and `names` to their entry in the reference; other names of ours stay text."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or node.get("reftype") not in ("class", "obj"):
        return None
    public = public_names().get(target)
    if public:
        domain = env.domains["py"]
        link = domain.resolve_xref(env, node["refdoc"], app.builder, "obj", public, node, text)
        if link is not None:
            return link
    is_ours = target.startswith("orthograd.") or node["reftype"] == "obj" or hasattr(orthograd.partition, target)
    return text if is_ours else None


_KEPT: dict[str, list[str]] = {}


def keep_attribute(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Keep the text of a property: napoleon would read the words before a colon in its first line as a type."""
    if what in ("attribute", "data", "property"):
        lines[:] = _KEPT.setdefault(name, list(lines))


def keep_aliases(app: Sphinx, what: str, name: str, value: Any, options: Any, *texts: str | None) -> tuple[str, ...]:
    """Restore the names of `autodoc_type_aliases` inside a union, which autodoc prints as an object."""
    pattern = re.compile(r"TypeAliasForwardRef\('([\w.]+)'\)")
    return tuple(text and pattern.sub(r"~\1", text) for text in texts)


def setup(app: Sphinx) -> None:
    """Register the functions above."""
    for priority in (400, 600):  # before napoleon, and after it
        app.connect("autodoc-process-docstring", keep_attribute, priority=priority)
    app.connect("autodoc-process-signature", keep_aliases)
    app.add_html_math_renderer("mathml", (write_mathml, None), (write_mathml, None))
    app.add_transform(RepositoryLinks)
    app.connect("missing-reference", resolve_public)
