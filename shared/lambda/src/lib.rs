//! The Lambda shell: cold start, partial batches, outcomes.
