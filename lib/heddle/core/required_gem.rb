# frozen_string_literal: true

module Heddle
  # Loads the gem that a part of Heddle is for.
  #
  # @api private
  module RequiredGem
    # @param path [String] as for `require`
    # @param part [String] what needs the gem
    # @param gem [String] its name, and perhaps ", 7.1 or later"
    # @raise [LoadError] that says what to add, if the gem is missing. The error of a file inside it is the gem's own
    def self.load(path, part, gem)
      require path
    rescue LoadError => error
      raise unless error.path == path

      raise LoadError, "#{part} needs the gem #{gem}: add gem \"#{gem[/[^,]+/]}\" to your Gemfile", cause: nil
    end
  end
end
