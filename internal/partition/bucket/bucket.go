// Package bucket stores archives in storage that speaks the S3 protocol.
//
// It does not know what the objects contain. ADR 79 has the reasons.
package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/badged/badged/internal/partition/archive"
)

// Bucket is an [archive.Store] whose objects are in a bucket, with a common prefix of their keys.
type Bucket struct {
	client *minio.Client
	// core is used to read objects, since it sends one request for each object: client would first
	// send another request for the metadata.
	core   minio.Core
	name   string
	prefix string
}

// Path implements archive.Store: s3://bucket/prefix/name.
func (b *Bucket) Path(name string) string {
	return strings.TrimSuffix("s3://"+path.Join(b.name, b.prefix, name), "/")
}

func (b *Bucket) key(name string) string { return path.Join(b.prefix, name) }

// probeName is the name of an empty object that Lock writes, to test whether the storage supports
// conditional writes.
const probeName = "lock"

// Lock implements archive.Store. It does not lock anything, since the conditional writes of Save
// detect other writers. Lock fails if the storage ignores the conditions of writes.
func (b *Bucket) Lock(ctx context.Context) (io.Closer, error) {
	var opts minio.PutObjectOptions
	opts.SetMatchETagExcept("*")
	for range 2 { // the first write may create the object
		_, err := b.client.PutObject(ctx, b.name, b.key(probeName), strings.NewReader(""), 0, opts)
		if isRefusedByCondition(err) {
			return io.NopCloser(nil), nil
		}
		if err != nil && minio.ToErrorResponse(err).StatusCode != http.StatusNotImplemented {
			return nil, fmt.Errorf("write to %s: %w", b.Path(""), b.explain(err))
		}
	}
	return nil, fmt.Errorf("%s: the storage does not support conditional writes (If-None-Match), so two processes could add to the archive at once: use one that does, or a folder", b.Path(""))
}

// Load implements archive.Store. The version is the object's ETag.
func (b *Bucket) Load(ctx context.Context, name string) (content []byte, version string, err error) {
	r, err := b.open(ctx, name)
	if err != nil {
		return nil, "", err
	}
	defer r.Close()
	content, err = io.ReadAll(r)
	return content, r.etag, err
}

// Save implements archive.Store.
func (b *Bucket) Save(ctx context.Context, name string, content []byte, version string) (string, error) {
	var opts minio.PutObjectOptions
	if version == "" {
		opts.SetMatchETagExcept("*")
	} else {
		opts.SetMatchETag(version)
	}
	opts.ContentType = "application/json"
	done, err := b.client.PutObject(ctx, b.name, b.key(name), bytes.NewReader(content), int64(len(content)), opts)
	if isRefusedByCondition(err) {
		return b.settle(ctx, name, content, err)
	}
	if err != nil {
		return "", fmt.Errorf("write %s: %w", b.Path(name), b.explain(err))
	}
	return done.ETag, nil
}

// Open implements archive.Store. If the connection breaks, the reader resumes at the same byte.
func (b *Bucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	return b.open(ctx, name)
}

// Remove implements archive.Store.
func (b *Bucket) Remove(ctx context.Context, name string) error {
	if err := b.client.RemoveObject(ctx, b.name, b.key(name), minio.RemoveObjectOptions{}); err != nil {
		return fmt.Errorf("remove %s: %w", b.Path(name), b.explain(err))
	}
	return nil
}

// isRefusedByCondition reports whether a write was refused because the object exists or has
// another version.
func isRefusedByCondition(err error) bool {
	r := minio.ToErrorResponse(err)
	return r.StatusCode == http.StatusPreconditionFailed || r.Code == "PreconditionFailed" || r.Code == "ConditionalRequestConflict"
}

// explain adds advice for the operator to an error of the storage. If the error says that the
// object does not exist, explain returns fs.ErrNotExist.
func (b *Bucket) explain(err error) error {
	r := minio.ToErrorResponse(err)
	switch r.Code {
	case "NoSuchKey":
		return fs.ErrNotExist
	case "NoSuchBucket":
		return fmt.Errorf("the bucket %q does not exist: create it, or correct its name", b.name)
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "InvalidTokenId":
		return fmt.Errorf("the storage refuses the credentials (%s): check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the profile", r.Code)
	case "AccessDenied", "AllAccessDisabled":
		return fmt.Errorf("the storage denies access: the credentials need s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucketMultipartUploads and s3:AbortMultipartUpload for the bucket %q and the prefix %q", b.name, b.prefix)
	case "AuthorizationHeaderMalformed", "PermanentRedirect":
		return fmt.Errorf("the bucket is in another region: set AWS_REGION: %w", err)
	}
	switch {
	case r.StatusCode == http.StatusNotFound && r.Code == "":
		return fs.ErrNotExist
	case r.StatusCode == http.StatusForbidden || r.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("the storage refuses the credentials (%s): %s", r.Code, r.Message)
	}
	if r.Code != "" {
		return fmt.Errorf("the storage answers %s: %w", r.Code, err)
	}
	if !errors.Is(err, context.Canceled) && !errors.Is(err, errNoCredentials) && !errors.Is(err, errAborted) {
		return fmt.Errorf("the storage at %s cannot be reached: %w", b.client.EndpointURL(), err)
	}
	return err
}

var _ archive.Store = (*Bucket)(nil)

// settle decides whether a refused conditional write is an error. If the object already has the
// content, an earlier attempt has succeeded although its response was lost: then settle returns
// the version of the object. Otherwise another process has written the object, and settle fails
// with archive.ErrInUse.
func (b *Bucket) settle(ctx context.Context, name string, content []byte, refused error) (version string, err error) {
	now, version, err := b.Load(ctx, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", errors.Join(refused, err)
	}
	if err == nil && bytes.Equal(now, content) {
		return version, nil
	}
	return "", fmt.Errorf("%s: %w", b.Path(name), archive.ErrInUse)
}
