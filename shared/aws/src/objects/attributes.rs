//! What is said about an object beside its bytes.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use object_store::{Attribute, Attributes, Error, ObjectMeta, Result, path::Path};

use super::bucket::Bucket;

/// Metadata that holds the id of the write that made an object.
pub(super) const WRITE: &str = "headwater-write";

/// Headers of an object that S3 keeps with it.
#[derive(Clone, Debug, Default)]
pub(super) struct Headers {
    pub(super) cache_control: Option<String>,
    pub(super) content_disposition: Option<String>,
    pub(super) content_encoding: Option<String>,
    pub(super) content_language: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) storage_class: Option<String>,
    pub(super) metadata: HashMap<String, String>,
}

impl Headers {
    /// # Errors
    /// `NotSupported` for an attribute that this adapter does not know.
    pub(super) fn of(attributes: &Attributes) -> Result<Self> {
        let mut headers = Self::default();
        for (attribute, value) in attributes {
            let value = value.to_string();
            match attribute {
                Attribute::CacheControl => headers.cache_control = Some(value),
                Attribute::ContentDisposition => headers.content_disposition = Some(value),
                Attribute::ContentEncoding => headers.content_encoding = Some(value),
                Attribute::ContentLanguage => headers.content_language = Some(value),
                Attribute::ContentType => headers.content_type = Some(value),
                Attribute::StorageClass => headers.storage_class = Some(value),
                Attribute::Metadata(name) => {
                    headers.metadata.insert(name.to_string(), value);
                }
                unknown => {
                    return Err(Error::NotSupported {
                        source: format!("attribute {unknown:?} on S3").into(),
                    });
                }
            }
        }
        Ok(headers)
    }

    /// The same, made by this write.
    pub(super) fn written_by(mut self, write: &str) -> Self {
        self.metadata.insert(WRITE.to_owned(), write.to_owned());
        self
    }

    /// The write that made the object.
    pub(super) fn write(&self) -> Option<&str> {
        self.metadata.get(WRITE).map(String::as_str)
    }

    /// As the port names them; who wrote the object is our own affair.
    fn attributes(self) -> Attributes {
        let named = [
            (Attribute::CacheControl, self.cache_control),
            (Attribute::ContentDisposition, self.content_disposition),
            (Attribute::ContentEncoding, self.content_encoding),
            (Attribute::ContentLanguage, self.content_language),
            (Attribute::ContentType, self.content_type),
            (Attribute::StorageClass, self.storage_class),
        ];
        let named = named
            .into_iter()
            .filter_map(|(attribute, value)| Some((attribute, value?)));
        let told = self.metadata.into_iter();
        let told = told
            .filter(|(name, _)| name != WRITE)
            .map(|(name, value)| (Attribute::Metadata(name.into()), value));
        let mut attributes = Attributes::new();
        for (attribute, value) in named.chain(told) {
            attributes.insert(attribute, value.into());
        }
        attributes
    }
}

/// Puts [`Headers`] on a request: put, upload and copy name them alike.
macro_rules! with_headers {
    ($request:expr, $headers:expr) => {{
        let headers: $crate::objects::attributes::Headers = $headers;
        let class = headers.storage_class.as_deref();
        $request
            .set_storage_class(class.map(aws_sdk_s3::types::StorageClass::from))
            .set_cache_control(headers.cache_control)
            .set_content_disposition(headers.content_disposition)
            .set_content_encoding(headers.content_encoding)
            .set_content_language(headers.content_language)
            .set_content_type(headers.content_type)
            .set_metadata((!headers.metadata.is_empty()).then_some(headers.metadata))
    }};
}
pub(super) use with_headers;

/// What S3 knows of an object.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) last_modified: Option<aws_smithy_types::DateTime>,
    pub(super) length: Option<i64>,
    pub(super) e_tag: Option<String>,
    pub(super) version: Option<String>,
    pub(super) headers: Headers,
}

/// Makes [`Known`] of an answer to GET or HEAD, which name it alike.
macro_rules! known {
    ($output:expr) => {
        $crate::objects::attributes::Known {
            last_modified: $output.last_modified,
            length: $output.content_length,
            e_tag: $output.e_tag,
            version: $output.version_id,
            headers: $crate::objects::attributes::Headers {
                cache_control: $output.cache_control,
                content_disposition: $output.content_disposition,
                content_encoding: $output.content_encoding,
                content_language: $output.content_language,
                content_type: $output.content_type,
                storage_class: $output.storage_class.map(|c| c.as_str().to_owned()),
                metadata: $output.metadata.unwrap_or_default(),
            },
        }
    };
}
pub(super) use known;

impl Known {
    /// As the port names it. `size` is that of the whole object, which an answer to a range does not hold as its length.
    ///
    /// # Errors
    /// When the answer lacks what every answer of S3 holds.
    pub(super) fn named(
        self,
        bucket: &Bucket,
        location: &Path,
        size: Option<u64>,
    ) -> Result<(ObjectMeta, Attributes)> {
        let lacks = |what| bucket.generic(location, format!("the answer has no {what}"));
        let length = self.length.and_then(|length| u64::try_from(length).ok());
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: moment(self.last_modified).ok_or_else(|| lacks("last-modified"))?,
            size: size.or(length).ok_or_else(|| lacks("content-length"))?,
            e_tag: self.e_tag,
            version: self.version,
        };
        Ok((meta, self.headers.attributes()))
    }
}

/// A moment in the port's type.
pub(super) fn moment(time: Option<aws_smithy_types::DateTime>) -> Option<DateTime<Utc>> {
    time.and_then(|time| DateTime::from_timestamp(time.secs(), time.subsec_nanos()))
}
