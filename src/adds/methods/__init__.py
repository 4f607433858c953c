"""The methods: each module votes on samples (`vote`) and says what that costs (`work`)."""
