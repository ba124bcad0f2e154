# frozen_string_literal: true

module Heddle
  # Keeps deadlines, cancels and heddle/timeout out of `require`, and so out of `autoload`, which calls it. An exception
  # there leaves half a library behind, which Ruby loads again from its start, and older RubyGems (that of Ruby 3.1)
  # keep their lock for ever: every other thread hangs at its next `require`. Libraries load code in surprising places:
  # Net::HTTP loads openssl when it first rescues an error, as a deadline's. The first wait after the `require` fails
  # instead.
  #
  # What begins inside of the loaded code is not affected: a program that is itself loaded has its deadlines.
  #
  # @api private
  module Loading
    MAIN = Ractor.current
    private_constant :MAIN

    class << self
      # Whether an exception of Heddle's may be raised here. Other Ractors have neither tasks nor scopes.
      def reachable? = Ractor.current.equal?(MAIN) && (Heddle.scoped? || Task.current)

      def load_openssl
        require "openssl"
      rescue LoadError, StandardError
        nil # a Ruby without TLS, or an OpenSSL under FIPS, where that of Ruby 3.1 raises an error of its own
      end
    end

    # An alias chain: other libraries make theirs, and one that began with a prepended method would never end.
    module ::Kernel
      alias_method :heddle_original_require, :require

      def require(path)
        return heddle_original_require(path) unless Loading.reachable?

        Heddle.unlimited_shield { heddle_original_require(path) }
      end
      private :require, :heddle_original_require
    end

    # Ruby 3.1 crashes if several threads wait for one autoload and an exception interrupts them there, outside of any
    # `require`. In a program with threads and Net::HTTP the deadlines of several requests do just that: Net::HTTP's
    # first rescue is the autoload of openssl. So openssl is loaded together with Net::HTTP.
    if RUBY_VERSION < "3.2"
      module ::Kernel
        alias_method :heddle_protected_require, :require

        def require(path)
          heddle_protected_require(path).tap { |loaded| Loading.load_openssl if loaded && path == "net/http" }
        end
        private :require, :heddle_protected_require
      end

      load_openssl if Object.const_defined?("Net::HTTP")
    end
  end
end
