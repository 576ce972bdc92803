package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/badged/badged/internal/partition/archive"
)

// awsEndpoint is used if no other endpoint is set.
const awsEndpoint = "https://s3.amazonaws.com"

// Check returns an error if location is neither a folder nor s3://bucket/prefix.
func Check(location string) error {
	_, _, err := parse(location)
	return err
}

// Store returns the store for the location of an archive: a [Bucket] for s3://bucket/prefix, or
// else an [archive.Folder]. It does not connect to the storage. A Bucket uses the environment
// variables of the AWS tools:
//
//   - the endpoint: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL;
//   - the region: AWS_REGION or AWS_DEFAULT_REGION;
//   - the credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY with AWS_SESSION_TOKEN; or the
//     profile AWS_PROFILE in AWS_SHARED_CREDENTIALS_FILE; or the role of the machine, container or
//     service account.
func Store(location string) (archive.Store, error) {
	name, prefix, err := parse(location)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return archive.Folder(location), nil
	}
	given := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), awsEndpoint)
	endpoint, err := url.Parse(given)
	if err != nil || endpoint.Host == "" || (endpoint.Scheme != "http" && endpoint.Scheme != "https") || strings.Trim(endpoint.Path, "/") != "" {
		return nil, fmt.Errorf("AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL must be like https://storage.example:9000, is %q", given)
	}
	if (os.Getenv("AWS_ACCESS_KEY_ID") == "") != (os.Getenv("AWS_SECRET_ACCESS_KEY") == "") {
		return nil, errors.New("set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither")
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds:     credentials.New(required{&credentials.Chain{Providers: providers()}}),
		Secure:    endpoint.Scheme == "https",
		Region:    cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
		Transport: transport(),
	})
	if err != nil {
		return nil, fmt.Errorf("set up the storage of %s: %w", location, err)
	}
	client.SetAppInfo("badged", "")
	return &Bucket{client: client, core: minio.Core{Client: client}, name: name, prefix: prefix}, nil
}

// parse returns the bucket and the prefix of a location, or bucket "" if the location is a folder.
func parse(location string) (bucket, prefix string, err error) {
	scheme, _, found := strings.Cut(location, "://")
	if !found {
		return "", "", nil
	}
	u, err := url.Parse(location)
	if err != nil || scheme != "s3" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", "", fmt.Errorf("an archive is a folder or s3://bucket/prefix, without user, query or fragment; is %q", location)
	}
	if err := s3utils.CheckValidBucketNameStrict(u.Host); err != nil {
		return "", "", fmt.Errorf("%q is not the name of a bucket: %w", u.Host, err)
	}
	return u.Host, strings.Trim(u.Path, "/"), nil
}

// providers returns the sources of credentials, in the order in which they are tried.
func providers() []credentials.Provider {
	all := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	if !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		all = append(all, &credentials.IAM{Client: &http.Client{Timeout: 5 * time.Second}})
	}
	return all
}

var errNoCredentials = errors.New("there are no credentials for the storage: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give this machine or service account a role")

// required is a chain of providers that makes requests fail if no provider has credentials. With
// a plain credentials.Chain, the client would send requests without a signature.
type required struct{ *credentials.Chain }

func (r required) RetrieveWithCredContext(ctx *credentials.CredContext) (credentials.Value, error) {
	v, err := r.Chain.RetrieveWithCredContext(ctx)
	if err == nil && v.AccessKeyID == "" {
		err = errNoCredentials
	}
	return v, err
}

// silence is how long a connection may transfer no byte before the request fails.
const silence = time.Minute

// transport returns an HTTP transport whose requests fail if no byte is transferred for the time
// `silence`. Without this limit, a request on a broken connection could block forever.
func transport() http.RoundTripper {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return silentConn{conn}, nil
		},
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     silence,
		TLSHandshakeTimeout: 10 * time.Second,
		// Do not let the transport decompress objects: their bytes must match the checksum.
		DisableCompression: true,
	}
}

// silentConn is a connection on which each read and each write fails after the duration silence.
type silentConn struct{ net.Conn }

func (c silentConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(silence)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c silentConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(silence)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
