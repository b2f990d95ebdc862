"""The dashboard: plain HTML, CSS and ES modules, served as they lie in `static/`."""
