package migrations

import "io/fs"

// Files are the migrations.
func Files() fs.FS { return files }

// UpFrom is Up with other migrations and other waits between attempts.
var UpFrom = up
