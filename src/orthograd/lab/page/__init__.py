"""Self-contained HTML pages: markup, figures as SVG, reliability diagrams, downloads."""
