"""Options for the Java of the tests. They are not in `standalone`, because that imports pyspark."""

from __future__ import annotations

# For Java processes that live a minute: the second compiler takes longer than it saves. Without it, Java keeps less
# room for code and discards compiled code, so the size is set to the usual one. Classes are not verified: for a
# small program, that takes a tenth of the time.
QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
