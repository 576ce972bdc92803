package pgneeds_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/badged/badged/internal/devtest/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }
