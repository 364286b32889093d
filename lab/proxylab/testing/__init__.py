"""What tests of scenarios need: hypothesis strategies, and a fuzzer of the reader.

Owns: ``scenario_texts`` (in ``scenarios``; needs hypothesis, which ``proxylab[dev]`` brings) and ``fuzz``.
Must not: be imported by anything else in ``lab``.
"""
