"""RTI Connext, measured with RTI's own PerfTest: the user's program and licence, our command lines.

Nothing of RTI's is here. k8sdds writes the command lines that PerfTest 3.1 to 4.3 accept and reads what it
prints. Where its facts come from: `docs/connext.md`.
"""
