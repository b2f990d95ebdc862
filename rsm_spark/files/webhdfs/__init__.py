"""The door of a file store: WebHDFS, as Hadoop's clients, Spark, fsspec and curl speak it."""
