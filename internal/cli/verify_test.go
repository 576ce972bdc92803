package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/badged/badged/internal/operations"
)

func TestVerifySummary(t *testing.T) {
	for _, tc := range []struct {
		cmd  verifyCmd
		sum  operations.Verified
		want string
		fail string
	}{
		{verifyCmd{}, operations.Verified{Partitions: 16, Users: 1, Conversations: 2000}, "1 user and 2,000 conversations of 16 partitions compared with the log: no difference\n", ""},
		{
			verifyCmd{},
			operations.Verified{Partitions: 1, Users: 3, Conversations: 1, Differences: 2},
			"3 users and 1 conversation of 1 partition compared with the log: 2 differences\n",
			"the tables differ from the log: 2 differences",
		},
		{
			verifyCmd{},
			operations.Verified{Partitions: 2, NotFolded: 907},
			"0 users and 0 conversations of 2 partitions compared with the log: no difference; 907 events are not folded yet\n", "",
		},
		{verifyCmd{JSON: true}, operations.Verified{Partitions: 1, Users: 3, Conversations: 4}, `{"partitions":1,"users":3,"conversations":4,"differences":0}` + "\n", ""},
	} {
		var out strings.Builder
		err := tc.cmd.finish(&out, tc.sum)
		if out.String() != tc.want || tc.fail == "" != (err == nil) || err != nil && err.Error() != tc.fail {
			t.Errorf("it prints %s and fails with %v", out.String(), err)
		}
		if err := tc.cmd.finish(full{}, tc.sum); !errors.Is(err, errFull) {
			t.Errorf("where nothing can be written: %v", err)
		}
	}
}

func TestVerifyUsage(t *testing.T) {
	const db = " --database-url=postgres://localhost/chat"
	expectUsage(t, map[string]string{
		"verify":                               "--database-url (BADGED_DATABASE_URL) is required",
		"verify --user=ann --sample=1" + db:    "--user cannot be combined with --sample or --partition",
		"verify --user=ann --partition=0" + db: "--user cannot be combined with --sample or --partition",
		"verify --user=" + db:                  "--user must not be empty",
		"verify --user=ann --sample=0" + db:    "--user cannot be combined with --sample or --partition",
		"verify --sample=0" + db:               "--sample must be 1 or more",
		"verify --sample=-1" + db:              "--sample must be 1 or more",
		"verify ann" + db:                      "unexpected argument ann",
	})
}
