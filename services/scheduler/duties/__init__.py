"""The duties of the scheduler: one small module each, any of them safe to run on several schedulers at once."""
