module pdinference.local/e2e/tiny

go 1.24.0
