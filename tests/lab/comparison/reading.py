"""The page read as a reader would: numbers out of cells, and out of drawings."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree


def parsed(text):
    return ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def words(element):
    return " ".join("".join(element.itertext()).split())


def numbers(text):
    """Every number in a cell, with minus signs and powers of ten as print has them."""
    raised = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    plain = re.sub(r" × 10([⁻⁰-⁹¹²³]+)", lambda found: "e" + found[1].translate(raised), text).replace("−", "-")
    return [float(each) for each in re.findall(r"[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?", plain)]


def tables(root):
    """Rows of texts by caption, the header first."""
    return {
        words(table.find("caption")): [[words(cell) for cell in row] for row in table.iter("tr")]
        for table in root.iter("table")
    }


def drawings(root):
    """By the start of the identity of their title."""
    return {svg.find("title").get("id").removesuffix("-title"): svg for svg in root.iter("svg") if svg.get("role")}


def heights(svg, look):
    """The values of a line, read off against the labels of the axis as an eye does."""
    lines = [float(line.get("y1")) for line in svg.iter("line") if line.get("class") == "grid"]
    labels = [float(text.text) for text in svg.iter("text") if text.get("class") == "right"]
    (bottom, top), (low, high) = (lines[0], lines[-1]), (labels[0], labels[len(lines) - 1])
    (line,) = [each for each in svg.iter("polyline") if each.get("class") == f"line {look}"]
    points = [float(point.split(",")[1]) for point in line.get("points").split()]
    return [low + (y - bottom) / (top - bottom) * (high - low) for y in points], abs((high - low) / (top - bottom))
