"""Codecs of payloads: values of the map, payloads and results of tasks, encrypted or compressed at their ends.

    from rsm_spark.codecs.aes_gcm import AesGcmCodec

    codec = AesGcmCodec.from_file("payloads.key")
    MapClient.connect("orders", codec=codec)
    BrokerClient.connect(urls, tenant="acme", codec=codec)

Servers, logs, snapshots and the lake hold what the codec made of it, and nobody there can read it.
"""
