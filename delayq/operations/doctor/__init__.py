"""The doctor: examines a queue and its servers, reports what is wrong, repairs what can be repaired."""
