//! Requests to services that no client is linked for, signed as the clients sign theirs.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use aws_config::SdkConfig;
use aws_sdk_s3::config::ProvideCredentials;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4::SigningParams,
};
use ports::{Clock, Error, Kind, Result};

/// Signs with the credentials of the process.
#[derive(Clone, Debug)]
pub struct Signer {
    config: SdkConfig,
    clock: Arc<dyn Clock>,
}

impl Signer {
    /// A signer over a configuration.
    #[must_use]
    pub fn new(config: SdkConfig, clock: Arc<dyn Clock>) -> Self {
        Self { config, clock }
    }

    /// The region of the process.
    ///
    /// # Errors
    /// `Invalid` when it has none.
    pub fn region(&self) -> Result<String> {
        let region = self.config.region().map(ToString::to_string);
        region.ok_or_else(|| {
            Error::new(Kind::Invalid, "sign", "request").because("no region is set: set AWS_REGION")
        })
    }

    /// Where a service of the region answers, or whatever stands for all services.
    ///
    /// # Errors
    /// `Invalid` when the process has no region.
    pub fn endpoint(&self, host: &str) -> Result<String> {
        match self.config.endpoint_url() {
            Some(url) => Ok(url.trim_end_matches('/').to_owned()),
            None => Ok(format!("https://{host}.{}.amazonaws.com", self.region()?)),
        }
    }

    /// The headers that sign a POST of JSON to a service.
    ///
    /// # Errors
    /// `Unavailable` when there are no credentials, `Invalid` for an address that is none.
    pub async fn post(
        &self,
        service: &str,
        url: &str,
        body: &[u8],
    ) -> Result<Vec<(String, String)>> {
        let missing = || {
            Error::new(Kind::Unavailable, "sign request to", service)
                .because("the process has no credentials")
        };
        let provider = self.config.credentials_provider().ok_or_else(missing)?;
        let credentials = provider.provide_credentials().await.map_err(|error| {
            Error::new(Kind::Unavailable, "sign request to", service).because(error)
        })?;
        let invalid =
            |why: String| Error::new(Kind::Invalid, "sign request to", service).because(why);
        let identity = credentials.into();
        let region = self.region()?;
        let parameters = SigningParams::builder()
            .identity(&identity)
            .region(&region)
            .name(service)
            .time(self.time())
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| invalid(error.to_string()))?
            .into();
        let headers = [("content-type", "application/json")].into_iter();
        let request = SignableRequest::new("POST", url, headers, SignableBody::Bytes(body))
            .map_err(|error| invalid(error.to_string()))?;
        let signed = sign(request, &parameters).map_err(|error| invalid(error.to_string()))?;
        let (instructions, _) = signed.into_parts();
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Ok(instructions.headers().map(owned).collect())
    }

    fn time(&self) -> SystemTime {
        let micros = u64::try_from(self.clock.now().0).unwrap_or(0);
        UNIX_EPOCH + std::time::Duration::from_micros(micros)
    }
}
