package replay

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/projector/internal/store"
)

// comparePaths compares the rows of paths of the users that r wants with r.
func (c *Comparison) comparePaths(ctx context.Context, r *Replay) error {
	var row store.PathRow
	columns := row.Columns()[store.PathKey:]
	sql, values, targets := texts(columns)
	where, args := c.where()
	rows, _ := c.In.Tx.Query(ctx, fmt.Sprintf(`SELECT user_id, category%s FROM badged.paths_p%02d WHERE %s`, sql, c.In.Partition, where), args...)
	var userID, path string
	compared := map[string]map[string]bool{}
	if _, err := pgx.ForEachRow(rows, append([]any{&userID, &path}, targets...), func() error {
		if !r.Wants(userID) {
			return nil
		}
		u := r.user(userID)
		p := u.Paths.Row(path)
		if p == nil {
			c.found(Difference{UserID: userID, Field: rowOfPath(path), Table: present, Log: absent})
			return nil
		}
		if compared[userID] == nil {
			compared[userID] = map[string]bool{}
		}
		compared[userID][path] = true
		row.Set(u, p)
		for _, d := range differing(columns, values) {
			d.UserID, d.Field = userID, fmt.Sprintf("%s of category %s", d.Field, path)
			c.found(d)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read the rows of paths: %w", err)
	}
	for _, u := range store.Sorted(r.Users) {
		for _, p := range u.Paths.AllRows() {
			if !compared[u.ID][p.Name] {
				c.found(Difference{UserID: u.ID, Field: rowOfPath(p.Name), Table: absent, Log: present})
			}
		}
	}
	return nil
}

func rowOfPath(path string) string { return "row of category " + path }
