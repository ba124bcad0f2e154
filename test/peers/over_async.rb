# frozen_string_literal: true

require "heddle/async"
