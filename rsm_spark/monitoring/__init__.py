"""Rules of Prometheus and dashboards of Grafana, as files, and where they lie."""
