"""From records to a training set: which of them are used, and cleaned of what the machine added."""
