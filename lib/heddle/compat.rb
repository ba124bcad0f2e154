# frozen_string_literal: true

# Mends what the running Ruby gets wrong under a fiber scheduler: a file a defect, loaded only where the defect is.

# Ruby 3.1's IO.select does not ask the scheduler (the hook came with 3.2).
require_relative "compat/io_select" if RUBY_VERSION < "3.2"
