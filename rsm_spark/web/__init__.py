"""Pages for people: the parts that the broker's dashboard and the cluster's console are both made of, in `static/`."""
