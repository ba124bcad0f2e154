# frozen_string_literal: true

require_relative "program"

module Compatibility
  module Peers
    # A directory with nothing in it but what each server of LDAP says of itself.
    class OpenLDAP < Program
      runs "slapd"

      private

      def scheme = "ldap"

      def arguments = ["-h", url, "-f", file("slapd.conf", <<~CONF), "-d", "0"]
        include /etc/ldap/schema/core.schema
        modulepath /usr/lib/ldap
        moduleload back_mdb
        pidfile #{dir}/pid
        database mdb
        suffix "dc=heddle"
        rootdn "cn=admin,dc=heddle"
        rootpw secret
        directory #{dir}
      CONF
    end
  end
end
