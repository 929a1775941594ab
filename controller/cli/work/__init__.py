"""Commands that are neither reads nor servers, such as `verify`; a module is loaded only when its command runs."""
