package egress

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		addr string
		// why is the reason without and with AllowPrivate; "" if permitted.
		why, whyPrivate string
	}{
		{"8.8.8.8", "", ""},
		{"2a00:1450:4001::200e", "", ""},
		{"127.0.0.1", loopback, ""},
		{"127.9.9.9", loopback, ""},
		{"::1", loopback, ""},
		{"10.0.0.1", private, ""},
		{"172.16.0.1", private, ""},
		{"172.31.255.255", private, ""},
		{"172.32.0.1", "", ""},
		{"192.168.1.1", private, ""},
		{"100.64.0.1", private, ""},
		{"100.127.255.255", private, ""},
		{"100.128.0.1", "", ""},
		{"198.18.0.1", private, ""},
		{"fc00::1", private, ""},
		{"fd12:3456::1", private, ""},
		{"169.254.169.254", metadata, metadata},
		{"169.254.170.2", metadata, metadata},
		{"100.100.100.200", metadata, metadata},
		{"168.63.129.16", metadata, metadata},
		{"fd00:ec2::254", metadata, metadata},
		{"169.254.0.1", linkLocal, linkLocal},
		{"fe80::1", linkLocal, linkLocal},
		{"fe80::1%eth0", linkLocal, linkLocal},
		{"224.0.0.1", multicast, multicast},
		{"ff02::1", multicast, multicast},
		{"0.0.0.0", special, special},
		{"0.1.2.3", special, special},
		{"::", special, special},
		{"255.255.255.255", special, special},
		{"240.0.0.1", special, special},
		{"203.0.113.7", special, special},
		{"2001:db8::1", special, special},
		{"2001::1", special, special}, // Teredo
		{"fec0::1", special, special},
		{"5f00::1", special, special},
		// Other forms of IPv4 addresses.
		{"::ffff:127.0.0.1", loopback, ""},
		{"::ffff:10.0.0.1", private, ""},
		{"::ffff:169.254.169.254", metadata, metadata},
		{"::ffff:8.8.8.8", "", ""},
		{"::127.0.0.1", loopback, ""},
		{"::169.254.169.254", metadata, metadata},
		{"64:ff9b::10.0.0.1", private, ""},
		{"64:ff9b::169.254.169.254", metadata, metadata},
		{"64:ff9b::8.8.8.8", "", ""},
		{"64:ff9b:1::8.8.8.8", special, special},
		{"2002:7f00:1::", loopback, ""},
		{"2002:a9fe:a9fe::", metadata, metadata},
		{"2002:808:808::", "", ""},
	} {
		addr := netip.MustParseAddr(c.addr)
		if got := refusal(addr, false); got != c.why {
			t.Errorf("%s is refused for %q, want %q", c.addr, got, c.why)
		}
		if got := refusal(addr, true); got != c.whyPrivate {
			t.Errorf("%s is refused for %q with AllowPrivate, want %q", c.addr, got, c.whyPrivate)
		}
	}
}

func TestURLs(t *testing.T) {
	const (
		numeric = "has an address that is not written as four decimal numbers"
		noPort  = "has a port that is not from 1 to 65535"
	)
	for _, c := range []struct{ url, why, whyPrivate string }{
		{"https://chat.example/hook?token=s3cret", "", ""},
		{"https://8.8.8.8:8443/hook", "", ""},
		{"http://chat.example/hook", "must begin with https://", ""},
		{"ftp://chat.example/hook", "must begin with https://", "must begin with https:// or http://"},
		{"chat.example/hook", "must begin with https://", "must begin with https:// or http://"},
		{"", "must begin with https://", "must begin with https:// or http://"},
		{"https://chat.example/%zz?token=s3cret", "is not a URL", "is not a URL"},
		{"https:///hook", "has no host", "has no host"},
		{"https://:443/hook", "has no host", "has no host"},
		{"https://ada:s3cret@chat.example/", "must not hold a user or a password", "must not hold a user or a password"},
		{"https://chat.example/#part", "must not have a fragment", "must not have a fragment"},
		{"https://127.0.0.1/hook", "belongs to this machine", ""},
		{"https://[::ffff:10.1.2.3]/hook", "belongs to a private network", ""},
		{"https://2130706433/", numeric, numeric},
		{"https://127.1/", numeric, numeric},
		{"https://0177.0.0.1/", numeric, numeric},
		{"https://0x7f.0.0.0x1/", numeric, numeric},
		{"https://0X7F000001/", numeric, numeric},
		{"https://127.0.0.1./", numeric, numeric},
		{"https://１２７.0.0.1/", numeric, numeric}, // full-width digits
		{"https://1.chat.example/", "", ""},
		{"https://my_chat.example/", "", ""},
		{"https://0xchat/", "", ""},
		{"https://localhost/", "belongs to this machine", ""},
		{"https://api.LocalHost./", "belongs to this machine", ""},
		{"https://localhost.chat.example/", "", ""},
		{"https://.../", "has no host", "has no host"},
		{"https://chat.example:/", "", ""},
		{"https://chat.example:0/", noPort, noPort},
		{"https://chat.example:65536/", noPort, noPort},
		{"https://169.254.169.254/latest", "belongs to cloud metadata", "belongs to cloud metadata"},
	} {
		if got := CheckURL(c.url, false); got != c.why {
			t.Errorf("%q %q, want %q", c.url, got, c.why)
		}
		if got := CheckURL(c.url, true); got != c.whyPrivate {
			t.Errorf("%q %q with allowPrivate, want %q", c.url, got, c.whyPrivate)
		}
	}
}

// get calls url and returns the status and the body.
func get(t *testing.T, client *http.Client, url string) (status int, body string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

func wantRefused(t *testing.T, err error, why string) {
	t.Helper()
	if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Reason != why {
		t.Errorf("the call returned %v, want a refusal of %s", err, why)
	}
}

func TestCallsAreRefusedWhenTheyConnect(t *testing.T) {
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	defer server.Close()

	client := NewClient(Config{})
	for _, url := range []string{server.URL, strings.Replace(server.URL, "127.0.0.1", "localhost", 1), strings.Replace(server.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1)} {
		_, _, err := get(t, client, url)
		wantRefused(t, err, loopback)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls arrived, want none", n)
	}
	if status, _, err := get(t, NewClient(Config{AllowPrivate: true}), server.URL); err != nil || status != http.StatusOK {
		t.Errorf("with AllowPrivate: %d, %v, want 200", status, err)
	}
}

// A name that stood for an address that is permitted is checked again when it
// stands for another.
func TestNamesAreCheckedAtEveryConnection(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())

	var answer atomic.Value
	answer.Store(netip.MustParseAddr("127.0.0.1"))
	client := NewClient(Config{AllowPrivate: true, Resolver: resolver(t, &answer)})
	url := "http://rebinding.example:" + port
	if status, _, err := get(t, client, url); err != nil || status != http.StatusOK {
		t.Fatalf("the first call returned %d, %v, want 200", status, err)
	}
	client.CloseIdleConnections()
	answer.Store(netip.MustParseAddr("169.254.169.254"))
	_, _, err := get(t, client, url)
	wantRefused(t, err, metadata)
}

// resolver returns a resolver that answers each question with the address in
// answer.
func resolver(t *testing.T, answer *atomic.Value) *net.Resolver {
	t.Helper()
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer func() { _ = theirs.Close() }()
			// Over a stream each message follows its length.
			var size [2]byte
			if _, err := io.ReadFull(theirs, size[:]); err != nil {
				return
			}
			question := make([]byte, binary.BigEndian.Uint16(size[:]))
			if _, err := io.ReadFull(theirs, question); err != nil {
				return
			}
			var m dnsmessage.Message
			if err := m.Unpack(question); err != nil {
				t.Errorf("unpack the question of the resolver: %v", err)
				return
			}
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class},
					Body:   &dnsmessage.AResource{A: answer.Load().(netip.Addr).As4()},
				}}
			}
			packed, err := m.AppendPack(size[:])
			if err != nil {
				t.Errorf("pack an answer: %v", err)
				return
			}
			binary.BigEndian.PutUint16(packed, uint16(len(packed)-2))
			_, _ = theirs.Write(packed)
		}()
		return ours, nil
	}}
}

// roots holds the certificate of a server.
func roots(server *httptest.Server) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return pool
}

func TestRedirects(t *testing.T) {
	var mux http.ServeMux
	server := httptest.NewServer(&mux)
	defer server.Close()
	mux.Handle("/metadata", http.RedirectHandler("http://169.254.169.254/latest", http.StatusFound))
	mux.Handle("/twice", http.RedirectHandler("/once", http.StatusFound))
	mux.Handle("/once", http.RedirectHandler("/end", http.StatusFound))
	mux.HandleFunc("/end", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "arrived") })

	if status, body, err := get(t, NewClient(Config{AllowPrivate: true}), server.URL+"/once"); err != nil || status != http.StatusFound || body == "arrived" {
		t.Errorf("a client that follows none got %d %q, %v, want 302", status, body, err)
	}
	one := NewClient(Config{AllowPrivate: true, MaxRedirects: 1})
	if _, body, err := get(t, one, server.URL+"/once"); err != nil || body != "arrived" {
		t.Errorf("a client that follows one got %q, %v", body, err)
	}
	if _, _, err := get(t, one, server.URL+"/twice"); err == nil || !strings.Contains(err.Error(), "redirects more than 1 times") {
		t.Errorf("two redirects returned %v", err)
	}
	_, _, err := get(t, one, server.URL+"/metadata")
	wantRefused(t, err, metadata)

	secure := httptest.NewTLSServer(http.RedirectHandler(server.URL+"/end", http.StatusFound))
	defer secure.Close()
	down := NewClient(Config{AllowPrivate: true, MaxRedirects: 1, RootCAs: roots(secure)})
	if _, _, err := get(t, down, secure.URL); err == nil || !strings.Contains(err.Error(), "from https to http") {
		t.Errorf("a redirect from https to http returned %v", err)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", len(r.URL.Path)-1))
	}))
	defer server.Close()
	client := NewClient(Config{AllowPrivate: true, MaxBody: 5})
	if _, body, err := get(t, client, server.URL+"/12345"); err != nil || body != "xxxxx" {
		t.Errorf("an answer of 5 bytes: %q, %v", body, err)
	}
	if _, body, err := get(t, client, server.URL+"/123456"); !errors.Is(err, ErrTooLong) || body != "xxxxx" {
		t.Errorf("an answer of 6 bytes: %q, %v, want ErrTooLong", body, err)
	}
}

func TestCertificatesMustMatch(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	if status, _, err := get(t, NewClient(Config{AllowPrivate: true, RootCAs: roots(server)}), server.URL); err != nil || status != http.StatusOK {
		t.Errorf("a certificate of a known authority: %d, %v, want 200", status, err)
	}
	if _, _, err := get(t, NewClient(Config{AllowPrivate: true}), server.URL); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate of an unknown authority: %v", err)
	}
	// The certificate is for example.com and 127.0.0.1.
	var answer atomic.Value
	answer.Store(netip.MustParseAddr("127.0.0.1"))
	other := NewClient(Config{AllowPrivate: true, RootCAs: roots(server), Resolver: resolver(t, &answer)})
	if _, _, err := get(t, other, strings.Replace(server.URL, "127.0.0.1", "other.test", 1)); err == nil || !strings.Contains(err.Error(), "not other.test") {
		t.Errorf("a certificate of another name: %v", err)
	}
}
