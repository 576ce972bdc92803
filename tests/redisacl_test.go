package tests

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/devtest/privateredis"
	"github.com/badged/badged/internal/devtest/snippets"
)

// minimalACL creates a Redis user with the rights that docs/operations.md lists.
var minimalACL = []any{"ACL", "SETUSER", "badged", "on", ">secret", "resetkeys", "resetchannels", "&badged:*", "-@all", "+ping", "+publish", "+subscribe", "+unsubscribe"}

// clusterACL are the additional rights for a Redis Cluster.
var clusterACL = []any{"+cluster|slots", "+command", "+spublish", "+ssubscribe", "+sunsubscribe"}

// asMinimalUser creates a Redis user with minimalACL and the rights in more, and returns a URL for
// that user.
func asMinimalUser(t *testing.T, server *privateredis.Server, more ...any) string {
	t.Helper()
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	for _, command := range [][]any{append(slices.Clone(minimalACL), more...), {"ACL", "SETUSER", "default", "off"}} {
		if err := client.Do(t.Context(), command...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return withMinimalUser(t, server.URL())
}

func withMinimalUser(t *testing.T, redisURL string) string {
	t.Helper()
	u, err := url.Parse(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("badged", "secret")
	return u.String()
}

// The page shows the rights that these tests use.
func TestRightsOfThePage(t *testing.T) {
	rights := strings.ReplaceAll(fmt.Sprintln(minimalACL...), ">secret", ">SECRET") + fmt.Sprintln(append([]any{"ACL", "SETUSER", "badged"}, clusterACL...)...)
	snippets.ExpectShape(t, snippets.With(t, "docs/operations.md", "ACL SETUSER", "").Text, rights)
}

// The documented rights of Redis suffice for serving and for config check.
func TestRedisUserWithLeastRights(t *testing.T) {
	t.Parallel()
	serveWithLeastRights(t, asMinimalUser(t, newRedis(t)))
}

// The documented rights for a Redis Cluster suffice for serving and for config check.
func TestRedisClusterUserWithLeastRights(t *testing.T) {
	t.Parallel()
	cluster, err := privateredis.StartCluster(t.Context(), privateredis.ClusterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	for _, master := range cluster.Masters {
		asMinimalUser(t, master, clusterACL...)
	}
	serveWithLeastRights(t, withMinimalUser(t, cluster.URL()))
}

func serveWithLeastRights(t *testing.T, over string) {
	t.Helper()
	database := newDatabase(t)
	p := rolesOver(t, database, over, "--reconcile-interval=10m")
	if said, code := checkConnect(t, "--database-url="+database, "--redis-url="+over); code != 0 ||
		!strings.Contains(said, "denies this user INFO") || !strings.Contains(said, "Redis delivers messages") {
		t.Errorf("config check exits with %d and prints\n%s", code, said)
	}
	throughEverything(t, database, p["api"], p["gateway"])
	awaitBus(t, p["gateway"], "ok", 1)
	for role, p := range p {
		if strings.Contains(p.out.String(), "NOPERM") {
			t.Errorf("%s lacks rights:\n%s", role, p.out)
		}
		p.mustStop()
	}
}
