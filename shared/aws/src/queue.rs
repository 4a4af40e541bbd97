//! The queue on SQS.
