//! State on DynamoDB.
