"""`pdinference dashboard`: the Grafana dashboard, of which the chart has a copy (`make generate`)."""
