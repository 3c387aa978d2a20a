package orders

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

BLOCK

func TestOrders(t *testing.T) {
	fmt.Println(os.Getenv("BOOTSTRAP_SERVERS"))
}
